"""JSON schemas as GBNF grammars: llama-cpp-python converts them, after keywords that it would ignore are rejected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..binding import import_llama_cpp

_ANNOTATIONS = frozenset(
    (
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("$schema", "$id", "$comment", "$defs", "definitions"),
    )
)
_FORMATS = ("date", "time", "date-time", "uuid", "uuid1", "uuid2", "uuid3", "uuid4", "uuid5")
_COUNTS = (("minItems", "maxItems"), ("minLength", "maxLength"))


def to_gbnf(schema: Mapping[str, Any] | str) -> str:
    """Convert a JSON schema (a mapping or JSON text) to a GBNF grammar with the start rule `root`.

    Raises ValueError for an invalid schema, and for a keyword that the grammar could not enforce.
    """
    try:
        parsed = json.loads(schema if isinstance(schema, str) else json.dumps(schema))
    except (TypeError, ValueError) as error:
        raise ValueError(f"json_schema is not JSON: {error}") from None
    _check(parsed, "the schema")
    try:
        grammar: str = import_llama_cpp("llama_grammar").json_schema_to_gbnf(json.dumps(parsed))
    except Exception as error:  # the converter raises errors of many types
        raise ValueError(f"json_schema cannot be turned into a grammar: {error or type(error).__name__}") from None
    return grammar


def _check(schema: Any, where: str) -> None:
    """Raise ValueError for the first part of a schema that the converter would ignore or misread."""
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
    _check_values(schema, where)
    for keyword in ("properties", "$defs", "definitions"):
        for name, part in schema.get(keyword, {}).items():
            _check(part, f"{keyword} {name!r}")
    for keyword in ("oneOf", "anyOf", "allOf", "prefixItems"):
        for number, part in enumerate(schema.get(keyword, ())):
            _check(part, f"{keyword} {number} of {where}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            _check(schema[keyword], f"{keyword} of {where}")


def _supported_keywords(schema: dict[str, Any]) -> frozenset[str]:
    """Return the keywords that the converter honours together, checked in the converter's own order."""
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
        return frozenset(("type", "properties", "required", "additionalProperties"))
    if kind in (None, "object") and "allOf" in schema:
        return frozenset(("type", "allOf"))
    for keyword, more in (("items", ("minItems", "maxItems")), ("prefixItems", ())):
        if kind in (None, "array") and keyword in schema:
            return frozenset(("type", keyword, *more))
    for keyword in ("pattern", "format"):
        if kind in (None, "string") and keyword in schema:
            return frozenset(("type", keyword))
    return frozenset(("type", "minLength", "maxLength") if kind == "string" else ("type",))


def _check_values(schema: dict[str, Any], where: str) -> None:
    """Raise ValueError for keyword values that the converter would misread."""
    for keyword, types, form in (
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
        ("additionalProperties", (bool, dict), "true, false or a schema"),
    ):
        if keyword in schema and not isinstance(schema[keyword], types):
            raise ValueError(f"json_schema: {keyword!r} of {where} must be {form}")
    for keyword in ("enum", "oneOf", "anyOf", "allOf", "prefixItems", "type"):
        if keyword in schema and not schema[keyword]:
            raise ValueError(f"json_schema: {keyword!r} of {where} is empty; no value could satisfy it")
    if schema.get("format", "date") not in _FORMATS:
        raise ValueError(
            f"json_schema: {where} has the format {schema['format']!r}; supported are {', '.join(_FORMATS)}"
        )
    if unknown := [name for name in schema.get("required", ()) if name not in schema.get("properties", {})]:
        raise ValueError(f"json_schema: {where} requires {unknown[0]!r}, which its properties do not describe")
    for least, most in _COUNTS:
        for keyword in (least, most):
            value = schema.get(keyword, 0)
            if type(value) is not int or value < 0:
                raise ValueError(
                    f"json_schema: {keyword!r} of {where} is {value!r}; it must be an integer of at least 0"
                )
        if schema.get(least, 0) > schema.get(most, float("inf")):
            raise ValueError(f"json_schema: {least!r} of {where} is above {most!r}; no value could satisfy it")
