"""Converts dataclasses to JSON data and back, and checks every value against the type hints on the way in."""

from __future__ import annotations

import dataclasses
import math
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on a value, for `Annotated[type, Check(…)]`; `wanted` completes "x is …, not "."""

    holds: Callable[[Any], object]
    wanted: str


def matching(pattern: str) -> Check:
    """Return the check that a whole text matches a regular expression of ASCII classes."""
    return Check(re.compile(pattern, re.ASCII).fullmatch, f"text of the form {pattern}")


NOT_EMPTY = Check(bool, "one with entries")
KEY = object()  # Annotated[str, KEY]: this field is the key under which an object lies in a `dict`


def to_json(value: Any) -> Any:
    """Return dataclasses as objects, tuples and sets as lists, and everything else unchanged."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(map(to_json, value))
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    return value


def from_json(kind: Any, data: Any, where: str = "") -> Any:
    """Return the value of type `kind` that `to_json` wrote; ValueError names the first wrong entry, its value and form.

    `kind` is str, int, float, bool, a dataclass, `tuple[X, ...]`, `frozenset[X]`, `dict[str, X]`, any of them
    `| None` or `Annotated` with a `Check`, or a union of dataclasses that an entry `kind` tells apart by their class
    attribute `KIND`. Fields with a default may be absent; unknown ones are refused. What hints cannot say, a class
    checks in `__post_init__`. `where` names `data` in errors.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        value = from_json(arguments[0], data, where)
        for check in arguments[1:]:
            if isinstance(check, Check) and not check.holds(value):
                raise _wrong(where, data, check.wanted)
        return value
    if isinstance(kind, types.UnionType):
        return _read_union(arguments, data, where)
    if origin in (tuple, frozenset):
        items = _expect(data, list, where, "a list")
        return origin(from_json(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(items))
    if origin is dict:
        entries = _expect(data, dict, where, "an object")
        return {key: _read_entry(arguments[1], key, item, _join(where, key)) for key, item in entries.items()}
    if dataclasses.is_dataclass(kind):
        return _read_object(kind, data, where)
    if kind is float and type(data) is int:
        return float(data)
    names = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}
    return _expect(data, kind, where, names[kind])


def _read_union(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and types.NoneType in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not types.NoneType)
    if len(kinds) == 1:
        return from_json(kinds[0], data, where)
    by_name = {kind.KIND: kind for kind in kinds}
    entries = dict(_expect(data, dict, where, "an object"))
    name = entries.pop("kind", None)
    if name not in by_name:
        raise _wrong(_join(where, "kind"), name, " or ".join(by_name))
    return from_json(by_name[name], entries, where)


def _read_entry(kind: Any, key: str, data: Any, where: str) -> Any:
    return _read_object(kind, data, where, key) if dataclasses.is_dataclass(kind) else from_json(kind, data, where)


def _read_object(kind: Any, data: Any, where: str, key: str | None = None) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values = {}
    if key is not None:
        for name in fields:
            if KEY in get_args(hints[name]):
                values[name] = from_json(hints[name], key, _join(where, name))
    entries = _expect(data, dict, where, "an object")
    names = [name for name in fields if name not in values]
    for name, entry in entries.items():
        if name not in names:
            raise _wrong(_join(where, name), entry, f"known; the fields here are {', '.join(names)}")
    for name in names:
        if name in entries:
            values[name] = from_json(hints[name], entries[name], _join(where, name))
        elif fields[name].default is dataclasses.MISSING and fields[name].default_factory is dataclasses.MISSING:
            raise ValueError(f"{_join(where, name)} is missing")
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}" if where else str(error)) from None


def _expect(data: Any, kind: type, where: str, wanted: str) -> Any:
    if type(data) is not kind or (isinstance(data, float) and not math.isfinite(data)):
        raise _wrong(where, data, wanted)
    return data


def _wrong(where: str, data: Any, wanted: str) -> ValueError:
    shown = repr(data)
    return ValueError(f"{where or 'it'} is {shown if len(shown) < 60 else shown[:57] + '…'}, not {wanted}")


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
