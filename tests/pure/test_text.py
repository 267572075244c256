"""Characters come out whole, however the bytes are cut."""

from __future__ import annotations

from collections.abc import Iterable
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
        (["ab", "cd"], ["abcde", "bc"], "a"),  # the one that began earlier comes to nothing
        (["ab", "c", "de"], ["abcde", "bc"], ""),  # and here it does not
        (["ab", "c", "d"], ["abcde", "bc", "cd"], "a"),
        (["ab", "c"], ["abcde", "bc"], "a"),  # the text ends before that is certain
        (["x", "yx", "yz"], ["xyz", "xyx"], ""),
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
    whole = "".join(pieces)
    for order in (stops, stops[::-1]):
        text, found = stopped_text(pieces, order)
        assert (text, found) == (shown, whole != shown)


def stopped_text(pieces: Iterable[str], stops: Iterable[str]) -> tuple[str, bool]:
    """What is shown of a text that comes in pieces, and whether a stop was found; no stop is ever shown."""
    stops = list(stops)
    scanner, shown = StopStrings(stops), ""
    for piece in pieces:
        free, stopped = scanner.push(piece)
        shown += free
        assert not any(stop in shown for stop in stops if stop)
        if stopped:
            break
    return shown + scanner.finish(), scanner.found


TEXTS, STOPS = st.text("abc", max_size=30), st.lists(st.text("abc", min_size=1, max_size=5), max_size=3)


@given(text=TEXTS, stops=STOPS, cuts=st.lists(st.integers(0, 30)))
def test_the_stop_that_begins_first_counts_however_the_text_is_cut(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    begins = [text.find(stop) for stop in stops if stop in text]
    expected = (text[: min(begins)] if begins else text, bool(begins))
    assert stopped_text([text[a:b] for a, b in pairwise(edges)], stops) == expected


@given(text=TEXTS, stops=STOPS)
def test_an_answer_goes_on_only_while_an_earlier_stop_is_possible(text: str, stops: list[str]) -> None:
    scanner = StopStrings(stops)
    for n, character in enumerate(text, 1):
        _, stopped = scanner.push(character)
        begins = [text[:n].find(stop) for stop in stops if stop in text[:n]]
        if stopped or not begins:
            assert stopped == bool(begins)
            if stopped:
                return
            continue
        ends = [text[begin:n] for begin in range(min(begins))]
        assert any(stop.startswith(end) for stop in stops for end in ends)
