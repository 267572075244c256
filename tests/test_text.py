"""Characters come out whole, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from via_sd_local.text import Utf8Stream


def shown(*pieces: bytes) -> list[str]:
    """What each piece brings to the screen, and what the end brings."""
    stream = Utf8Stream()
    return [*(stream.push(piece) for piece in pieces), stream.finish()]


def test_plain_text_passes_at_once() -> None:
    assert shown(b"Hel", b"", b"lo") == ["Hel", "", "lo", ""]


@pytest.mark.parametrize("character", ["é", "日", "🙂"])
def test_a_character_appears_with_its_last_byte(character: str) -> None:
    data = character.encode()
    pieces = [data[i : i + 1] for i in range(len(data))]
    assert shown(*pieces) == [*[""] * (len(data) - 1), character, ""]


def test_cjk_split_over_pieces_keeps_what_is_complete() -> None:
    data = "日本語".encode()
    assert shown(data[:4], data[4:8], data[8:]) == ["日", "本", "語", ""]


def test_an_emoji_of_several_code_points_arrives_in_order() -> None:
    family = "👩‍👩‍👧"
    data = family.encode()
    assert "".join(shown(*(data[i : i + 2] for i in range(0, len(data), 2)))) == family


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((b"\xff", b"a"), ["�", "a", ""]),
        ((b"\x80a",), ["�a", ""]),
        ((b"\xe6\x97", b"a"), ["", "�a", ""]),  # a character that another one interrupts
        ((b"\xf0\x9f", b"\xf0\x9f\x99\x82"), ["", "�🙂", ""]),
        ((b"\xc0\xaf",), ["��", ""]),  # an overlong form
        ((b"\xed\xa0\x80",), ["���", ""]),  # a surrogate
    ],
)
def test_invalid_bytes_become_replacement_characters(pieces: tuple[bytes, ...], expected: list[str]) -> None:
    assert shown(*pieces) == expected


def test_what_never_became_whole_is_replaced_at_the_end() -> None:
    assert shown(b"ok", b"\xf0\x9f\x99") == ["ok", "", "�"]


def test_finish_leaves_nothing_behind() -> None:
    stream = Utf8Stream()
    stream.push(b"\xe6")
    assert stream.finish() == "�"
    assert stream.push(b"a") == "a"


@given(st.binary(), st.lists(st.integers(0, 50)))
def test_the_whole_is_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(edges)]
    assert "".join(shown(*pieces)) == data.decode("utf-8", "replace")
