"""Many literal texts found by one pattern."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from via_sd_local.runtime.literals import any_of

TEXTS = st.lists(st.text("ab<|\\]", min_size=1, max_size=6), max_size=12)


@given(TEXTS, st.text("ab<|\\]", max_size=40))
def test_the_same_places_are_found_as_by_trying_the_longest_text_first(texts: list[str], text: str) -> None:
    longest_first = sorted(texts, key=lambda literal: -len(literal))
    expected = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
    spans = [match.span() for match in any_of(texts).finditer(text)]
    assert spans == [match.span() for match in expected.finditer(text)]


def test_texts_that_begin_alike_nest_only_so_deep() -> None:
    chain = ["a" * length for length in range(1, 300)]
    assert [match.span() for match in any_of(chain).finditer("b" + "a" * 298 + "b")] == [(1, 299)]


def test_thousands_of_texts_cost_a_place_no_more_than_a_few() -> None:
    texts = [f"<unused{number}>" for number in range(6000)] + ["<end_of_turn>", "[multimodal]"]
    pattern = any_of(texts)
    assert {match[0] for match in pattern.finditer("<unused17><unused170><unused6000><end_of_turn>")} == {
        *("<unused17>", "<unused170>", "<end_of_turn>"),
    }
    # nested, not flat: the alternatives after "<" are as many as the second characters
    assert pattern.pattern.startswith(r"<(?:end_of_turn>|unused(?:")
