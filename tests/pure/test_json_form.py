"""JSON data becomes dataclasses, or an error that names the entry, its value, and what it should be."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import pytest

from via_sd_local.json_form import KEY, NOT_EMPTY, Check, from_json, matching, to_json


@dataclass(frozen=True, slots=True)
class Circle:
    KIND: ClassVar = "circle"

    radius: Annotated[float, Check(lambda radius: radius > 0, "a length above 0")]


@dataclass(frozen=True, slots=True)
class Polygon:
    KIND: ClassVar = "polygon"

    corners: Annotated[tuple[int, ...], NOT_EMPTY]


@dataclass(frozen=True, slots=True)
class Layer:
    name: Annotated[str, matching("[a-z]+"), KEY]
    shape: Circle | Polygon
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    layers: dict[str, Layer]
    colours: frozenset[int] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        if 0 in self.colours:
            raise ValueError("colours has 0, which is the background")


GOOD = {"layers": {"top": {"shape": {"kind": "circle", "radius": 2}}}, "colours": [3, 1]}


def changed(path: str, value: Any) -> Any:
    data = json.loads(json.dumps(GOOD))
    *folders, last = path.split(".")
    at = data
    for name in folders:
        at = at[name]
    at[last] = value
    return data


def test_hints_say_how_to_read() -> None:
    assert from_json(Drawing, GOOD) == Drawing({"top": Layer("top", Circle(2.0))}, frozenset({1, 3}))
    polygon = changed("layers.top.shape", {"kind": "polygon", "corners": [4]})
    assert from_json(Drawing, polygon).layers["top"].shape == Polygon((4,))
    assert from_json(Drawing, {"layers": {}}) == Drawing({})
    assert from_json(dict[str, tuple[int, ...]], {"a": [1]}) == {"a": (1,)}


def test_sets_and_tuples_are_written_as_lists() -> None:
    assert to_json(Drawing({"a": Layer("a", Polygon((2, 1)))}, frozenset({3, 1}))) == {
        "layers": {"a": {"name": "a", "shape": {"corners": [2, 1]}, "note": None}},
        "colours": [1, 3],
    }


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("colours", [1, "x"], r"in\.colours\[1\] is 'x', not an integer"),
        ("colours", [0], "in: colours has 0, which is the background"),
        ("layers.top.shape", {"kind": "star"}, r"in\.layers\.top\.shape\.kind is 'star', not circle or polygon"),
        ("layers.top.shape", {"radius": 1}, r"in\.layers\.top\.shape\.kind is None, not circle or polygon"),
        ("layers.top.shape", 3, r"in\.layers\.top\.shape is 3, not an object"),
        ("layers.top.shape", {"kind": "polygon", "corners": []}, r"corners is \[\], not one with entries"),
        ("layers.top.shape.radius", -1, r"shape\.radius is -1, not a length above 0"),
        ("layers.top.shape.radius", float("inf"), r"shape\.radius is inf, not a number"),
        ("layers.top.note", 1, r"layers\.top\.note is 1, not a text"),
        ("layers.top.name", "other", r"layers\.top\.name is 'other', not known; the fields here are shape, note"),
        ("layers.UP", {}, r"in\.layers\.UP\.name is 'UP', not text of the form \[a-z\]\+"),
        ("layers", {"a": {}}, r"in\.layers\.a\.shape is missing"),
        ("size", "x" * 80, r"in\.size is 'x+…, not known; the fields here are layers, colours"),
    ],
)
def test_the_first_wrong_entry_is_named_with_its_value(path: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json(Drawing, changed(path, value), "in")
