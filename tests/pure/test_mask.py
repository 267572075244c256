"""What a mask reads, prints and refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from via_sd_local.mask import LayerMask


@st.composite
def masks(draw: st.DrawFn) -> LayerMask:
    n_layer = draw(st.integers(1, 40))
    layers = st.frozensets(st.integers(0, n_layer - 1))
    return LayerMask(n_layer, draw(layers), draw(layers))


@pytest.mark.parametrize(
    ("text", "attn", "ffn"),
    [
        ("", [], []),
        ("none", [], []),
        ("  NONE ", [], []),
        ("3", [3], [3]),
        ("2-4", [2, 3, 4], [2, 3, 4]),
        ("4-4", [4], [4]),
        ("a3", [3], []),
        ("f3", [], [3]),
        ("a0-2", [0, 1, 2], []),
        ("A3, f5-6 ,9", [3, 9], [5, 6, 9]),
        ("a3,f3", [3], [3]),
        ("1,1,0-2", [0, 1, 2], [0, 1, 2]),
        ("0,9", [0, 9], [0, 9]),
    ],
)
def test_parse_reads_layers_ranges_and_sublayers(text: str, attn: list[int], ffn: list[int]) -> None:
    assert LayerMask.parse(text, 10) == LayerMask(10, frozenset(attn), frozenset(ffn))


@pytest.mark.parametrize(
    ("attn", "ffn", "text"),
    [
        ([], [], "none"),
        ([2], [2], "2"),
        ([1, 2, 3, 7], [1, 2, 3, 7], "1-3,7"),
        ([4, 5], [5, 6], "5,a4,f6"),
        ([0, 1, 2], [], "a0-2"),
        ([], [0, 2], "f0,f2"),
        (range(10), range(10), "0-9"),
    ],
)
def test_print_writes_whole_layers_first_and_joins_neighbours(attn: list[int], ffn: list[int], text: str) -> None:
    assert str(LayerMask.of(10, attn=attn, ffn=ffn)) == text


@given(masks())
def test_parse_reads_back_what_was_printed(mask: LayerMask) -> None:
    assert LayerMask.parse(str(mask), mask.n_layer) == mask


@given(masks())
def test_json_reads_back_what_was_written(mask: LayerMask) -> None:
    assert LayerMask.from_json(json.loads(json.dumps(mask.to_json()))) == mask


@pytest.mark.parametrize(
    ("text", "names", "remedy"),
    [
        ("x", "'x'", "none of 12, 12-17"),
        ("1,,2", "''", "none of 12, 12-17"),
        ("1,", "''", "none of 12, 12-17"),
        ("-3", "'-3'", "none of 12, 12-17"),
        ("3-", "'3-'", "none of 12, 12-17"),
        ("2 - 3", "'2 - 3'", "none of 12, 12-17"),
        ("1,b3", "'b3'", "none of 12, 12-17"),
        ("1,none", "'none'", "none of 12, 12-17"),
        ("a2-f3", "'a2-f3'", "none of 12, 12-17"),
        ("0,a7-3", "'a7-3'", "write 3-7"),
        ("0,f10", "'f10' names layer 10", "0 to 9"),
        ("3-10", "'3-10' names layer 10", "0 to 9"),
        ("0-99999999999", "names layer 99999999999", "0 to 9"),
    ],
)
def test_parse_refuses_an_item_by_name_and_says_what_would_do(text: str, names: str, remedy: str) -> None:
    with pytest.raises(ValueError, match="mask item") as caught:
        LayerMask.parse(text, 10)
    assert names in str(caught.value)
    assert remedy in str(caught.value)


@pytest.mark.parametrize("part", ["attn", "ffn"])
@pytest.mark.parametrize("layer", [-1, 4])
def test_a_layer_that_the_model_lacks_is_refused(part: str, layer: int) -> None:
    with pytest.raises(ValueError, match=f"layer {layer}; the model's layers are 0 to 3"):
        LayerMask.of(4, **{part: [0, layer]})


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="n_layer is 0; a model has at least one layer"):
        LayerMask(0)


GOOD = {"n_layer": 4, "attn": [1], "ffn": [0, 3]}


def test_json_is_plain_and_sorted() -> None:
    assert LayerMask.of(4, attn=[1], ffn=[3, 0]).to_json() == GOOD
    assert LayerMask.from_json(GOOD) == LayerMask.of(4, attn=[1], ffn=[0, 3])
    far = LayerMask.of(64, attn=[1, 32], ffn=[3, 40])  # sets that do not iterate in order
    assert far.to_json() == {"n_layer": 64, "attn": [1, 32], "ffn": [3, 40]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "mask is None, not an object"),
        ([], r"mask is \[\], not an object"),
        ("1-3", "mask is '1-3', not an object"),
        ({}, r"mask\.n_layer is missing"),
        ({"n_layer": 4, "attn": []}, r"mask\.ffn is missing"),
        ({"n_layer": 4, "ffn": []}, r"mask\.attn is missing"),
        ({"attn": [], "ffn": []}, r"mask\.n_layer is missing"),
        (GOOD | {"attn": None}, r"mask\.attn is None, not a list"),
        (GOOD | {"ffn": 3}, r"mask\.ffn is 3, not a list"),
        (GOOD | {"attn": "1"}, r"mask\.attn is '1', not a list"),
        (GOOD | {"attn": ""}, r"mask\.attn is '', not a list"),
        (GOOD | {"ffn": {}}, r"mask\.ffn is \{\}, not a list"),
        (GOOD | {"attn": ["1"]}, r"mask\.attn\[0\] is '1', not an integer"),
        (GOOD | {"attn": [1.0]}, r"mask\.attn\[0\] is 1\.0, not an integer"),
        (GOOD | {"ffn": [True]}, r"mask\.ffn\[0\] is True, not an integer"),
        (GOOD | {"n_layer": "4"}, r"mask\.n_layer is '4', not an integer"),
        (GOOD | {"n_layer": 4.0}, r"mask\.n_layer is 4\.0, not an integer"),
        (GOOD | {"n_layer": None}, r"mask\.n_layer is None, not an integer"),
    ],
)
def test_json_of_another_form_is_refused(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LayerMask.from_json(data)


def test_json_that_names_a_layer_too_many_is_refused() -> None:
    with pytest.raises(ValueError, match="layer 4; the model's layers are 0 to 3"):
        LayerMask.from_json(GOOD | {"attn": [4]})


def test_bytes_have_bit_0_for_attention_and_bit_1_for_ffn() -> None:
    assert LayerMask.of(5, attn=[1, 3], ffn=[2, 3]).to_bytes() == bytes([0, 1, 2, 3, 0])


def test_bytes_of_the_full_model_are_empty() -> None:
    assert LayerMask(5).to_bytes() == b""


def test_below_skips_every_earlier_layer_whole() -> None:
    assert LayerMask.below(5, 3) == LayerMask.parse("0-2", 5)
    assert LayerMask.below(5, 0) == LayerMask(5)
    assert LayerMask.below(5, 5) == LayerMask.parse("0-4", 5)


@given(masks())
def test_first_ratio_length_and_truth_agree_with_the_bytes(mask: LayerMask) -> None:
    data = mask.to_bytes() or bytes(mask.n_layer)
    skipped = sum(byte.bit_count() for byte in data)
    assert len(mask) == skipped
    assert bool(mask) is (skipped > 0)
    assert mask.skip_ratio == skipped / (2 * mask.n_layer)
    assert mask.first == next((il for il, byte in enumerate(data) if byte), None)


def test_masks_are_values() -> None:
    assert LayerMask.of(6, attn=[1, 1, 2]) == LayerMask.of(6, attn=(2, 1))
    assert len({LayerMask.parse("a1,f1", 6), LayerMask.parse("1", 6)}) == 1
    assert LayerMask.parse("1", 6) != LayerMask.parse("1", 7)
