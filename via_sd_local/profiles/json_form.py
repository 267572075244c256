"""Dataclasses as JSON and back, with every value checked: types by the annotations, the rest by the class itself."""

from __future__ import annotations

import dataclasses
import math
import types
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Dataclasses as objects, tuples as lists, all else as it is."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    return value


def from_json(kind: type[T], data: Any, where: str = "") -> T:
    """The dataclass that `to_json` wrote; ValueError that names the first field which is not as it should be.

    Fields may be str, int, float, bool, dataclasses, `tuple[X, ...]`, `dict[str, X]`, and each of them `| None`. What
    types do not say, a class checks in `__post_init__`.
    """
    value: T = _read(kind, data, where)
    return value


def _read(kind: Any, data: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return None if data is None else _read(inner, data, where)
    if origin is tuple:
        items = _expect(data, list, where, "a list")
        return tuple(_read(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(items))
    if origin is dict:
        entries = _expect(data, dict, where, "an object")
        return {key: _read(arguments[1], item, _join(where, key)) for key, item in entries.items()}
    if dataclasses.is_dataclass(kind):
        return _read_object(kind, data, where)
    if kind is float and type(data) is int:
        return float(data)
    names = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}
    return _expect(data, kind, where, names[kind])


def _read_object(kind: Any, data: Any, where: str) -> Any:
    entries = _expect(data, dict, where, "an object")
    names = [field.name for field in dataclasses.fields(kind)]
    for key in entries:
        if key not in names:
            raise ValueError(f"{_join(where, key)} is not known; the fields here are {', '.join(names)}")
    hints = get_type_hints(kind)
    values = {}
    for name in names:
        if name not in entries:
            raise ValueError(f"{_join(where, name)} is missing")
        values[name] = _read(hints[name], entries[name], _join(where, name))
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}" if where else str(error)) from None


def _expect(data: Any, kind: type, where: str, wanted: str) -> Any:
    if type(data) is not kind or (isinstance(data, float) and not math.isfinite(data)):
        shown = repr(data)
        raise ValueError(f"{where or 'it'} is {shown if len(shown) < 60 else shown[:57] + '…'}, not {wanted}")
    return data


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
