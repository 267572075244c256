"""Characters come out whole, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from via_sd_local.text import StopStrings, Utf8Stream


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


@pytest.mark.parametrize(
    ("pieces", "stops", "shown"),
    [
        (["one two three"], ["three", "two"], "one "),  # both at once: the earlier one
        (["one two", " three"], ["three", "two"], "one "),
        (["ab", "cd"], ["abcde", "bc"], "a"),
        (["aa", "ab"], ["aab"], "a"),
        (["st", "ill"], ["stop"], "still"),
        (["st", "o", "p it"], ["stop"], ""),
        (["a", "", "b"], ["ab"], ""),
        (["plain"], [], "plain"),
        (["plain"], [""], "plain"),
    ],
)
def test_the_first_stop_ends_the_text_and_beginnings_of_stops_are_held_back(
    pieces: list[str], stops: list[str], shown: str
) -> None:
    scanner, text = StopStrings(stops), ""
    for piece in pieces:
        free, stopped = scanner.push(piece)
        text += free
        if stopped:
            break
    assert text + scanner.finish() == shown


@given(text=st.text("abc", max_size=30), stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_character_by_character_the_stop_that_is_complete_first_counts(text: str, stops: list[str]) -> None:
    scanner, shown = StopStrings(stops), ""
    for character in text:
        free, stopped = scanner.push(character)
        shown += free
        assert not any(stop in shown for stop in stops)
        if stopped:
            break
    shown += scanner.finish()
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    first = min((end for end, _ in ends), default=None)
    assert shown == (text if first is None else text[: min(begin for end, begin in ends if end == first)])
