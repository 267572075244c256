"""Checks of JSON schemas: what a grammar could not enforce is refused by name."""

from __future__ import annotations

import json
from typing import Any

from .gbnf_limits import MAX_REPETITIONS
from .pattern_rules import PatternError, pattern_rule

TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")
FORMATS = ("date", "time", "date-time", "uuid", "uuid1", "uuid2", "uuid3", "uuid4", "uuid5")
MAX_NESTING = 100  # objects and lists inside each other

_ANNOTATIONS = frozenset(
    (
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("$schema", "$id", "$comment", "$defs", "definitions"),
    )
)
_COUNTS = (("minItems", "maxItems"), ("minLength", "maxLength"))
_OBJECT = frozenset(("type", "properties", "required", "additionalProperties"))


def check_nesting(value: Any) -> None:
    """Raise ValueError for JSON that is nested too deeply to be converted."""
    level = [value]
    for _ in range(MAX_NESTING):
        level = [
            part
            for parent in level
            if isinstance(parent, (dict, list))
            for part in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return
    raise ValueError(f"json_schema is nested more than {MAX_NESTING} deep")


def check_schema(schema: Any, where: str) -> None:
    """Raise ValueError for the first part of a schema that a grammar could not enforce."""
    if not isinstance(schema, dict):
        raise ValueError(f"json_schema: {where} is {json.dumps(schema):.40}; it must be an object")
    used = _supported_keywords(schema)
    for keyword in schema:
        if keyword not in used and keyword not in _ANNOTATIONS:
            beside = next(iter(sorted(used & schema.keys())), None)
            raise ValueError(
                f"json_schema: {where} has {keyword!r}, which a grammar cannot enforce"
                + (f" beside {beside!r}" if beside else "")
            )
    _check_forms(schema, where)
    _check_counts(schema, where)
    _check_strings(schema, where)
    for keyword in ("properties", "$defs", "definitions"):
        for name, part in schema.get(keyword, {}).items():
            check_schema(part, f"{keyword} {name!r}")
    for keyword in ("oneOf", "anyOf", "allOf", "prefixItems"):
        for number, part in enumerate(schema.get(keyword, ())):
            check_schema(part, f"{keyword} {number} of {where}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            check_schema(schema[keyword], f"{keyword} of {where}")


def _supported_keywords(schema: dict[str, Any]) -> frozenset[str]:
    """Return the keywords that can be enforced together, checked in the converter's order."""
    kind = schema.get("type")
    for keyword in ("$ref", "oneOf", "anyOf"):
        if keyword in schema:
            return frozenset((keyword,))
    if isinstance(kind, list):
        return frozenset(("type",))
    for keyword in ("const", "enum"):
        if keyword in schema:
            return frozenset(("type", keyword))
    if kind in (None, "object") and schema.keys() & {"properties", "additionalProperties"}:
        return _OBJECT
    if kind in (None, "object") and "allOf" in schema:
        return frozenset(("type", "allOf"))
    if kind == "array" or (kind is None and schema.keys() & {"items", "prefixItems"}):
        return frozenset(("type", "prefixItems" if "prefixItems" in schema else "items", "minItems", "maxItems"))
    for keyword in ("pattern", "format"):
        if kind in (None, "string") and keyword in schema:
            return frozenset(("type", keyword))
    return frozenset(("type", "minLength", "maxLength") if kind == "string" else ("type",))


def _check_forms(schema: dict[str, Any], where: str) -> None:
    for keyword, types, form in (
        ("$ref", str, "a string"),
        ("properties", dict, "an object"),
        ("$defs", dict, "an object"),
        ("definitions", dict, "an object"),
        ("required", list, "a list"),
        ("enum", list, "a list"),
        ("oneOf", list, "a list"),
        ("anyOf", list, "a list"),
        ("allOf", list, "a list"),
        ("prefixItems", list, "a list"),
        ("type", (str, list), "a name or a list of names"),
        ("items", dict, "a schema"),
        ("pattern", str, "a string"),
        ("format", str, "a string"),
        ("additionalProperties", (bool, dict), "true, false or a schema"),
    ):
        if keyword in schema and not isinstance(schema[keyword], types):
            raise ValueError(f"json_schema: {keyword!r} of {where} must be {form}")
    for keyword in ("enum", "oneOf", "anyOf", "allOf", "prefixItems", "type"):
        if keyword in schema and not schema[keyword]:
            raise ValueError(f"json_schema: {keyword!r} of {where} is empty; no value could satisfy it")
    kinds = schema.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind not in TYPES:
            raise ValueError(f"json_schema: {where} has the type {kind!r:.40}; types are {', '.join(TYPES)}")
    if any(not isinstance(name, str) for name in schema.get("required", ())):
        raise ValueError(f"json_schema: 'required' of {where} must be a list of names")
    if unknown := [name for name in schema.get("required", ()) if name not in schema.get("properties", {})]:
        raise ValueError(f"json_schema: {where} requires {unknown[0]!r}, which its properties do not describe")


def _check_counts(schema: dict[str, Any], where: str) -> None:
    for least, most in _COUNTS:
        for keyword in (least, most):
            value = schema.get(keyword, 0)
            if type(value) is not int or value < 0:
                raise ValueError(
                    f"json_schema: {keyword!r} of {where} is {value!r}; it must be an integer of at least 0"
                )
            if value > MAX_REPETITIONS:
                raise ValueError(
                    f"json_schema: {keyword!r} of {where} is {value}; a grammar counts to {MAX_REPETITIONS} at most"
                )
        if schema.get(least, 0) > schema.get(most, float("inf")):
            raise ValueError(f"json_schema: {least!r} of {where} is above {most!r}; no value could satisfy it")
    if "prefixItems" in schema:
        n = len(schema["prefixItems"])
        if not schema.get("minItems", n) <= n <= schema.get("maxItems", n):
            raise ValueError(f"json_schema: {where} has {n} prefixItems, which its minItems and maxItems do not permit")


def _check_strings(schema: dict[str, Any], where: str) -> None:
    if schema.get("format", "date") not in FORMATS:
        raise ValueError(
            f"json_schema: {where} has the format {schema['format']!r}; supported are {', '.join(FORMATS)}"
        )
    if "pattern" in schema:
        try:
            pattern_rule(schema["pattern"])
        except PatternError as error:
            raise ValueError(
                f"json_schema: the pattern {schema['pattern']!r:.80} of {where} has {error}, which a grammar cannot "
                "enforce"
            ) from None
