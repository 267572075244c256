"""llama-cpp-python's draft models: what they return is checked, and nothing that they do ends an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fakes
import numpy as np
import pytest
from fakes import N_VOCAB, RandomLanguage, expected_text
from generations import DRAFTING, PROMPT, build, tokens_of

from via_sd_local.binding import import_llama_cpp
from via_sd_local.engine import drafting
from via_sd_local.engine.policy import Mode
from via_sd_local.engine.stats import PassCount
from via_sd_local.tiers.drafter import Hints
from via_sd_local.tiers.llama_cpp_drafter import LlamaDraftModelDrafter


def test_it_is_shown_the_whole_text_as_an_array_of_its_own() -> None:
    seen: list[np.ndarray] = []

    def model(input_ids: np.ndarray, **_more: Any) -> np.ndarray:
        assert input_ids.dtype == np.intc
        seen.append(input_ids)
        input_ids = input_ids.copy()
        seen[-1][0] = 99  # what it does to its array is its own affair
        return np.array([7], np.intc)

    drafter = LlamaDraftModelDrafter(model)
    texts = [[1, 2, 3], [1, 2, 3, 4], [1, 2, 9], [*range(600)], [5]]
    unchanged = [0, 3, 2, 1, 0]
    for text, n in zip(texts, unchanged, strict=True):
        assert drafter.propose(text, 4, Hints(unchanged=n)).tokens == [7]
    assert [ids.tolist()[1:] for ids in seen] == [text[1:] for text in texts]


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        (np.array([4, 5, 6], np.intc), [4, 5, 6]),
        (np.array([4, 5], np.int64), [4, 5]),
        (np.array([4.0, 5.0]), [4, 5]),
        ([4, 5], [4, 5]),
        (np.arange(50, dtype=np.intc), [0, 1, 2, 3]),  # too many
        (np.array([], np.intc), []),
        ([], []),
    ],
    ids=str,
)
def test_tokens_in_any_numeric_form_are_taken_up_to_the_limit(answer: Any, tokens: list[int]) -> None:
    draft = LlamaDraftModelDrafter(lambda _ids: answer).propose([1, 2], 4)
    assert draft.tokens == tokens
    assert all(type(token) is int for token in draft.tokens)
    assert draft.confidences == draft.proposals == []


@pytest.mark.parametrize(
    "answer", [None, 5, "45", ["a"], np.array([[4, 5]]), np.array([4.5]), np.array([np.nan]), np.array([True])], ids=str
)
def test_what_is_no_list_of_token_ids_is_an_error_that_shows_it(answer: Any) -> None:
    with pytest.raises(ValueError, match=r"the draft model returned .*; (it must return|token ids are)"):
        LlamaDraftModelDrafter(lambda _ids: answer).propose([1, 2], 4)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(ValueError, match=r"draft_model is 'small.gguf'; it must be a LlamaDraftModel"):
        LlamaDraftModelDrafter("small.gguf")  # type: ignore[arg-type]


def broken(answer: Callable[[], Any]) -> Callable[[np.ndarray], Any]:
    return lambda _ids: answer()


@pytest.mark.parametrize("mode", DRAFTING)
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda: 1 // 0, "division"),
        (lambda: None, "returned None"),
        (lambda: np.array([N_VOCAB], np.intc), f"proposed token {N_VOCAB}"),
        (lambda: np.array([3, -1], np.intc), "proposed token -1"),
    ],
)
def test_a_draft_model_that_misbehaves_is_dropped_with_one_warning(
    mode: Mode, answer: Callable[[], Any], why: str
) -> None:
    language = RandomLanguage(2, confidences=[0.3])
    engine = build(language, mode, LlamaDraftModelDrafter(broken(answer)))
    with pytest.warns(RuntimeWarning, match=f"the drafter failed .*{why}.*; going on without drafts") as warned:
        assert tokens_of(engine, max_tokens=20) == expected_text(language, PROMPT, 20)
    assert len(warned) == 1
    assert engine.stats.drafter_failed


def test_the_time_of_its_calls_is_counted_as_drafting(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = fakes.Clock()
    monkeypatch.setattr(drafting, "time", clock)

    def model(_ids: np.ndarray) -> list[int]:
        clock.now += 6
        return [1, 2, 3]

    engine = build(RandomLanguage(1), Mode.SD, LlamaDraftModelDrafter(model), draft_tokens=5)
    steps = engine.generate(PROMPT)
    next(steps)
    next(steps)
    assert engine.stats.passes["draft"] == PassCount(3, 3, 6.0)
    assert engine.stats.drafted == 3


def test_llama_cpp_pythons_own_prompt_lookup_drafts() -> None:
    lookup = import_llama_cpp("llama_speculative").LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=10)
    language = RandomLanguage(1)
    engine = build(language, Mode.SD, LlamaDraftModelDrafter(lookup))
    assert tokens_of(engine, max_tokens=40) == expected_text(language, PROMPT, 40)
    assert 0 < engine.stats.accepted < engine.stats.drafted
    assert LlamaDraftModelDrafter(lookup).propose([5, 6, 7, 8, 5, 6], 2).tokens == [7, 8]
