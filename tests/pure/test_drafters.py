"""What the drafters propose: prompt lookup against a search by hand, the model drafter over a fake context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fakes
import numpy as np
import pytest
from fakes import RandomLanguage, Script, expected_text, fake_model_drafter
from hypothesis import given
from hypothesis import strategies as st

from via_sd_local.tiers.drafter import Draft, Hints
from via_sd_local.tiers.prompt_lookup import PromptLookup


def looked_up(text: list[int], limit: int, *, smallest: int, largest: int) -> list[int]:
    """What a lookup should propose, by trying every place."""
    for size in range(largest, smallest - 1, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if text[end - size : end] == text[-size:]:
                return text[end : end + limit]
    return []


def test_the_longest_match_wins_over_a_later_shorter_one() -> None:
    text = [1, 2, 3, 7, 9, 2, 3, 8, 9, 1, 2, 3]
    assert PromptLookup().propose(text, 2) == Draft([7, 9], [])
    assert PromptLookup(max_ngram=2).propose(text, 2).tokens == [8, 9]


def test_among_equal_matches_the_most_recent_wins() -> None:
    assert PromptLookup().propose([1, 2, 7, 1, 2, 8, 1, 2], 3).tokens == [8, 1, 2]


def test_a_match_shorter_than_min_ngram_proposes_nothing() -> None:
    assert PromptLookup().propose([1, 5, 2, 5], 3).tokens == []
    assert PromptLookup(min_ngram=1).propose([1, 5, 2, 5], 3).tokens == [2, 5]


def test_the_end_of_the_text_does_not_match_itself() -> None:
    assert PromptLookup(min_ngram=1).propose([1, 2, 3, 4], 3).tokens == []
    assert PromptLookup(min_ngram=1).propose([1], 3).tokens == []


def test_a_match_may_overlap_the_end() -> None:
    assert PromptLookup().propose([5, 5, 5], 3).tokens == [5]


@pytest.mark.parametrize(("limit", "tokens"), [(1, [3]), (2, [3, 1]), (9, [3, 1, 2])])
def test_a_draft_ends_at_the_limit_or_with_the_text(limit: int, tokens: list[int]) -> None:
    assert PromptLookup().propose([1, 2, 3, 1, 2], limit).tokens == tokens


def test_the_index_starts_over_when_the_text_changes() -> None:
    lookup = PromptLookup()
    assert lookup.propose([1, 2, 7, 1, 2], 1).tokens == [7]
    assert lookup.propose([1, 2, 8, 1, 2], 1).tokens == [8]
    assert lookup.propose([4, 1, 2], 1).tokens == []
    assert lookup.propose([4, 1, 2, 6, 1, 2], 1).tokens == [6]
    assert lookup.propose([4, 1, 2], 1).tokens == []  # shortened


turns = st.lists(st.tuples(st.integers(0, 6), st.lists(st.integers(0, 3), min_size=1, max_size=8)), max_size=12)


@given(turns, st.integers(1, 3), st.integers(0, 3), st.integers(1, 6))
def test_lookup_agrees_with_a_search_by_hand(
    changes: list[tuple[int, list[int]]], smallest: int, more: int, limit: int
) -> None:
    lookup, text = PromptLookup(min_ngram=smallest, max_ngram=smallest + more), [0, 1]
    for dropped, added in changes:  # a text that grows, and now and then loses its end
        text = text[: max(0, len(text) - max(0, dropped - 3))] + added
        expected = looked_up(text, limit, smallest=smallest, largest=smallest + more)
        for _ in range(2):  # asked twice, it says the same
            assert lookup.propose(text, limit).tokens == expected


edits = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.lists(st.integers(0, 2), max_size=5)), max_size=10)


@given(edits)
def test_a_lookup_whose_text_changes_anywhere_is_like_a_fresh_one(
    changes: list[tuple[float, float, list[int]]],
) -> None:
    """Whatever share of what is unchanged it is told."""
    lookup, text = PromptLookup(min_ngram=1), [0, 1, 2]
    for cut, told, added in changes:
        kept = int(cut * len(text))
        text = text[:kept] + added + [1]
        assert lookup.propose(text, 4, Hints(unchanged=int(told * kept))) == PromptLookup(min_ngram=1).propose(text, 4)


class Counting(list[int]):
    """A text that counts how many of its tokens are read."""

    read = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.read += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self) -> Any:
        self.read += len(self)
        return super().__iter__()


@pytest.mark.parametrize(
    "drafter", [PromptLookup, lambda: fake_model_drafter(RandomLanguage(3), n_ctx=5000)], ids=["lookup", "model"]
)
def test_a_text_that_grew_by_a_few_tokens_is_not_read_again(drafter: Callable[[], Any]) -> None:
    one, fresh = drafter(), drafter()
    text = Counting(np.random.default_rng(0).integers(0, 10, 4000).tolist())
    one.propose(text, 3)
    for n in range(20):
        unchanged = len(text)
        text += [1, 2, n % 10]
        text.read = 0
        draft = one.propose(text, 3, Hints(unchanged=unchanged))
        assert text.read < 40
        assert draft.tokens == fresh.propose(list(text), 3).tokens


def test_lookup_leaves_the_callers_text_alone() -> None:
    lookup, text = PromptLookup(), [1, 2, 3, 1, 2]
    lookup.propose(text, 3).tokens.append(99)
    assert text == [1, 2, 3, 1, 2]
    text += [4, 5]
    assert lookup.propose([1, 2, 3, 1, 2], 3).tokens == [3, 1, 2]


@pytest.mark.parametrize(("smallest", "largest"), [(0, 2), (3, 2), (-1, -1)])
def test_lookup_refuses_impossible_sizes(smallest: int, largest: int) -> None:
    with pytest.raises(ValueError, match=f"min_ngram {smallest} and max_ngram {largest}"):
        PromptLookup(min_ngram=smallest, max_ngram=largest)


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_the_model_drafter_drafts_its_models_greedy_text(limit: int) -> None:
    language = RandomLanguage(3)
    drafter = fake_model_drafter(language)
    for text in ([1, 2, 3], [1, 2, 3, 4], [1, 2, 3], [1, 2, 9, 9, 9], [5], list(range(10))):
        draft = drafter.propose(text, limit)
        assert draft.tokens == expected_text(language, text, limit)
        assert len(draft.confidences) == limit


def test_the_model_drafters_confidences_are_its_probabilities() -> None:
    drafter = fake_model_drafter(Script([0, 1, 2, 3, 4, 5]))
    assert drafter.propose([0, 1], 3).confidences == pytest.approx([0.9, 0.9, 0.9], abs=1e-6)


class Fading:
    """Counts up, with probability 0.9, 0.8, 0.7, … after 2, 3, 4, … tokens."""

    def full(self, text: list[int]) -> fakes.Floats:
        return fakes.peak(len(text), 1.1 - 0.1 * len(text))

    slim = full


@pytest.mark.parametrize(("least", "tokens"), [(0.0, [2, 3, 4, 5]), (0.75, [2, 3]), (0.85, [2]), (0.95, [])])
def test_a_draft_ends_where_the_model_is_unsure(least: float, tokens: list[int]) -> None:
    assert fake_model_drafter(Fading(), min_confidence=least).propose([0, 1], 4).tokens == tokens


def test_a_model_draft_stays_within_its_context() -> None:
    drafter = fake_model_drafter(Script(list(range(9))), n_ctx=6)
    assert drafter.propose([0, 1, 2], 9).tokens == [3, 4, 5, 6]  # no pass needs to see the last one
    assert drafter.propose([0, 1, 2, 3, 4, 5], 9).tokens == [6]
    assert drafter.propose([0, 1, 2, 3, 4, 5, 6], 9) == Draft([], [])


def test_the_model_drafter_computes_only_what_is_new() -> None:
    drafter = fake_model_drafter(Script(list(range(12))))
    seen = fakes.passes(drafter.cache)
    seen.clear()
    counted: list[tuple[str, int]] = []

    def record(kind: str, tokens: int, _seconds: float) -> None:
        counted.append((kind, tokens))

    drafter.propose([0, 1, 2], 3, Hints(recorder=record))
    drafter.observe(2)
    drafter.propose([0, 1, 2, 3, 4, 7], 1, Hints(unchanged=3, recorder=record))  # it had drafted 3, 4, 5 and seen 3, 4
    assert seen == [("full", 0, 3), ("full", 3, 1), ("full", 4, 1), ("full", 5, 1)]
    assert counted == [("prefill", 3), ("draft", 1), ("draft", 1), ("draft", 1)]


def test_closing_the_model_drafter_frees_its_context() -> None:
    drafter = fake_model_drafter(Script([0]))
    drafter.close()
    assert isinstance(drafter.cache.context, fakes.FakeContext)
    assert drafter.cache.context.closed


@pytest.mark.parametrize("least", [-0.1, 1.0, 1.5])
def test_min_confidence_is_a_probability_below_1(least: float) -> None:
    with pytest.raises(ValueError, match=f"min_confidence is {least}"):
        fake_model_drafter(Script([0]), min_confidence=least)
