"""JSON schemas as GBNF grammars, after keywords that a grammar cannot enforce are refused.

Objects have their required properties first, in the schema's order, then the optional ones, as with llama-cpp-python.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from .json_rules import (
    NOT_PLAIN,
    RULES,
    character_class,
    complement,
    json_character,
    json_text,
    literal,
    references,
    repeated,
    with_dependencies,
)
from .pattern_rules import pattern_rule
from .schema_check import MAX_NESTING, check_nesting, check_schema

_QUOTE = literal('"')
_BARE_NAME = re.compile("[a-zA-Z0-9-]+")
_JSON_TYPES: Mapping[str, Any] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}


def to_gbnf(schema: Mapping[str, Any] | str) -> str:
    """Convert a JSON schema (a mapping or JSON text) to a GBNF grammar with the start rule `root`.

    An empty schema stands for any object. Raises ValueError for an invalid schema, and for a keyword that the grammar
    could not enforce.
    """
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema, allow_nan=False)
        parsed = json.loads(text, parse_constant=_refuse_constant)
        check_nesting(parsed)
    except RecursionError:
        raise ValueError("json_schema is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise ValueError(
            str(error) if str(error).startswith("json_schema") else f"json_schema is not JSON: {error}"
        ) from None
    check_schema(parsed, "the schema")
    return _Converter(parsed).grammar()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


class _Converter:
    """Converts one schema; rules are added as its parts are visited."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._rules: dict[str, str] = {"root": ""}
        self._references = {"#": "root"}

    def grammar(self) -> str:
        """Return the whole grammar, the rules sorted by name."""
        schema = self._schema
        self._rules["root"] = "object" if not schema else self._expression(schema, "root")
        used = {name for text in self._rules.values() for name in references(text)}
        rules = with_dependencies(used & RULES.keys()) | self._rules
        return "\n".join(f"{name} ::= {text}" for name, text in sorted(rules.items()))

    def _add(self, name: str, text: str) -> str:
        """Add a rule with a name like this one, and return its name; the same rule is not added twice."""
        stem = re.sub("[^a-zA-Z0-9]+", "-", name)[:60].strip("-") or "part"
        number, unique = 0, stem
        while unique in RULES or self._rules.get(unique, text) != text:
            number += 1
            unique = f"{stem}-{number}"
        self._rules[unique] = text
        return unique

    def _rule(self, schema: dict[str, Any], name: str) -> str:
        """Return the name of the rule for a part of the schema."""
        expression = self._expression(schema, name)
        return expression if _BARE_NAME.fullmatch(expression) else self._add(name, expression)

    def _expression(self, schema: dict[str, Any], name: str) -> str:
        """Return the right side of the rule for a part of the schema; `name` is the rule's, for those of its parts."""
        kind = schema.get("type")
        parts = schema.get("oneOf") or schema.get("anyOf")
        if isinstance(kind, list) and not schema.keys() & {"$ref", "oneOf", "anyOf"}:
            parts = [{"type": one} for one in kind]
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if parts:
            return " | ".join(self._rule(part, f"{name}-{i}") for i, part in enumerate(parts))
        if "const" in schema or "enum" in schema:
            return self._constants(schema)
        if kind in (None, "object"):
            if schema.keys() & {"properties", "additionalProperties"}:
                return self._object(schema, name)
            if "allOf" in schema:
                return self._all_of(schema["allOf"], name)
        if kind == "array" or schema.keys() & {"items", "prefixItems"}:
            return self._array(schema, name)
        if kind in (None, "string") and schema.keys() & {"pattern", "format", "minLength", "maxLength"}:
            return _string(schema)
        return "value" if kind is None else str(kind)

    def _reference(self, reference: str) -> str:
        """Return the name of the rule for the part of the schema that a `$ref` points at."""
        if reference not in self._references:
            target = self._target(reference)
            name = self._add(reference.split("/")[-1], f"# {reference}")  # a place, for references to itself
            self._references[reference] = name
            self._rules[name] = self._expression(target, name)
        return self._references[reference]

    def _target(self, reference: str) -> dict[str, Any]:
        """Return the part of the schema that a `$ref` points at."""
        if not reference.startswith("#"):
            raise ValueError(f"json_schema: $ref {reference!r:.80} points to another document, which is not fetched")
        target: Any = self._schema
        for step in map(unquote, reference[1:].split("/")[1:]):
            key = step.replace("~1", "/").replace("~0", "~")
            try:
                target = target[int(key)] if isinstance(target, list) else target[key]
            except (KeyError, IndexError, ValueError, TypeError):
                target = None
        if not isinstance(target, dict):
            raise ValueError(f"json_schema: $ref {reference!r:.80} points to no part of the schema")
        return target

    def _constants(self, schema: dict[str, Any]) -> str:
        values = schema.get("enum", [schema.get("const")])
        kind = schema.get("type")
        if kind is not None:
            values = [value for value in values if _is_of_type(value, kind)]
            if not values:
                raise ValueError(f"json_schema: no value of an enum or const is of its type, {kind!r}")
        return " | ".join(literal(json_text(value)) for value in values)

    def _all_of(self, parts: Sequence[dict[str, Any]], name: str) -> str:
        """Return the expression of one part alone, or of objects whose properties are put together."""
        if len(parts) == 1:
            return self._expression(parts[0], name)
        together: dict[str, Any] = {"properties": {}, "required": []}
        for number, component in enumerate(parts):
            part, followed = component, 0
            while "$ref" in part and followed < MAX_NESTING:
                part, followed = self._target(part["$ref"]), followed + 1
            if "properties" not in part or part.get("additionalProperties", True) is not True:
                raise ValueError(
                    f"json_schema: allOf {number} is no object of properties that others may be added to, which a "
                    "grammar cannot combine"
                )
            if twice := sorted(together["properties"].keys() & part["properties"].keys()):
                raise ValueError(f"json_schema: allOf describes {twice[0]!r} twice, which a grammar cannot combine")
            together["properties"] |= part["properties"]
            together["required"] += part.get("required", [])
        return self._object(together, name)

    def _object(self, schema: dict[str, Any], name: str) -> str:
        prefix = "" if name == "root" else f"{name}-"
        properties, required = schema.get("properties", {}), set(schema.get("required", ()))
        pairs = {
            key: self._add(
                f"{prefix}{key}-kv", f'{literal(json_text(key))} space ":" space {self._rule(part, prefix + key)}'
            )
            for key, part in properties.items()
        }
        tail = ""  # what may follow the last property
        additional = schema.get("additionalProperties", False)
        optional = [pairs[key] for key in properties if key not in required]
        if additional is not False:
            key_rule = self._other_keys(list(properties), prefix) if properties else "string"
            value = self._rule(additional, f"{prefix}additional-value") if isinstance(additional, dict) else "value"
            pair = self._add(f"{prefix}additional-kv", f'{key_rule} ":" space {value}')
            tail = f'("," space {pair})*'
            optional.append(pair)
        # alternatives, each beginning with another optional property
        alternatives: list[str] = []
        rest = ""
        for pair in reversed(optional):
            is_additional = bool(tail) and pair == optional[-1]
            after = tail if is_additional else rest
            alternatives.append(f"{pair} {after}".strip())
            step = tail if is_additional else f'("," space {pair})? {rest}'.strip()
            rest = self._add(f"{pair}-rest", step)
        first = ' "," space '.join(pairs[key] for key in properties if key in required)
        others = " | ".join(reversed(alternatives))
        if others:
            others = f'("," space ({others}))?' if first else f"({others})?"
        return " ".join(filter(None, ('"{" space', first, others, '"}" space')))

    def _other_keys(self, names: Sequence[str], prefix: str) -> str:
        """Return the name of the rule for strings that are none of these names."""

        def node(rests: list[str]) -> str:
            """Return the rule for what may follow a prefix of names whose remainders are `rests`."""
            firsts = sorted({rest[0] for rest in rests if rest})
            alternatives = [
                f"{literal(json_character(ord(first)))} {node([rest[1:] for rest in rests if rest[:1] == first])}"
                for first in firsts
            ]
            others = complement([*NOT_PLAIN, *((ord(first), ord(first)) for first in firsts)])
            alternatives.append(f"{character_class(others)} char*")
            ends = [] if "" in rests else ['""']
            return self._add(f"{prefix}other-key", " | ".join([*alternatives, *ends]))

        return self._add(f"{prefix}other-keys", f"{_QUOTE} {node(list(names))} {_QUOTE} space")

    def _array(self, schema: dict[str, Any], name: str) -> str:
        prefix = "" if name == "root" else f"{name}-"
        if "prefixItems" in schema:
            items = (self._rule(item, f"{prefix}tuple-{i}") for i, item in enumerate(schema["prefixItems"]))
            return '"[" space ' + ' "," space '.join(items) + ' "]" space'
        item = self._rule(schema.get("items", {}), f"{prefix}item")
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if most == 0:
            return '"[" space "]" space'
        more = repeated(f'("," space {item})', max(least - 1, 0), None if most is None else most - 1)
        inside = f"{item} {more}" if most != 1 else item
        return f'"[" space {inside if least else f"({inside})?"} "]" space'


def _string(schema: dict[str, Any]) -> str:
    if "pattern" in schema:
        return f"{_QUOTE} ({pattern_rule(schema['pattern'])}) {_QUOTE} space"
    if "format" in schema:
        kind = str(schema["format"])
        return "uuid" if kind.startswith("uuid") else f"{kind}-string"
    characters = repeated("char", schema.get("minLength", 0), schema.get("maxLength"))
    return f"{_QUOTE} {characters} {_QUOTE} space"


def _is_of_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _JSON_TYPES[kind])
