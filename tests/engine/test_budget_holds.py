"""The budget over answers of any length, with slim tiers as bad as can be. Fakes; every answer has a fresh budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import fakes
import numpy as np
import pytest

from via_sd_local.arrays import Floats
from via_sd_local.engine.costs import Costs
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import ConfidenceRule, Rule
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.engine.steps import Tier
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.tiers.drafter import Drafter

LAX = ConfidenceRule(0.01, 0.01)
LENGTHS = (3, 6, 20, 60, 200)
DRAFTERS: list[Callable[[fakes.Language], Drafter]] = [
    fakes.oracle,
    fakes.always_wrong,
    fakes.sometimes_right,
    fakes.slim_like,
    fakes.of_any_length,
    fakes.called,
    fakes.fake_model_drafter,
]
# where the slim tier costs next to nothing, so that the pace sends every draft there
SAME = {1: 1.0, 64: 1.0}
CHEAP_SLIM = Costs({"full": SAME, "resume": SAME, "slim": {1: 0.01, 64: 0.02}, "draft": {1: 0.01, 64: 0.01}})


class Hopeless:
    """The slim tier is sure of a token that the full tier would not choose, on a share of the texts."""

    def __init__(self, share: float = 1.0) -> None:
        self._language = fakes.RandomLanguage(5)

        def slim(*context: int) -> Floats:
            deviates = np.random.default_rng([7, *context]).random() < share
            return fakes.peak((int(self.full(context).argmax()) + deviates) % fakes.POISON, 0.95)

        self._slim = lru_cache(maxsize=None)(slim)

    def full(self, text: Sequence[int]) -> Floats:
        return self._language.full(text)

    def slim(self, text: Sequence[int]) -> Floats:
        return self._slim(*text[-3:])


def engine(language: Any, drafter: Drafter, share: float | None, n_bytes: int = 10**9, **policy: Any) -> Engine:
    verifier = fakes.fake_verifier(language, n_ctx=256)
    verifier.model.n_bytes = n_bytes  # type: ignore[misc]
    fields = {"rule": LAX, "max_deviation": share, **policy}
    return Engine(verifier, drafter, Policy(Mode.TIERED, **fields), Costs.from_json(CHEAP_SLIM.to_json()))


def answer(one: Engine, n: int, prompt: Sequence[int] = (1, 2, 3), temperature: float = 0.0) -> tuple[float, float]:
    """An answer's deviations by the language itself, and by the statistics; the seed makes the budget a fresh one."""
    steps = list(one.generate(prompt, max_tokens=n, sampling=SamplingParams(temperature=temperature, seed=1)))
    tokens, tiers = [t for step in steps for t in step.tokens], [t for step in steps for t in step.tiers]
    assert len(tokens) == n
    language: Any = one.verifier.model.language  # type: ignore[attr-defined]
    text, deviations = list(prompt), 0.0
    for token, tier in zip(tokens, tiers, strict=True):
        full = language.full(text)
        if not temperature:
            deviations += token != int(full.argmax())
        elif tier is not Tier.FULL:
            p, q = (np.exp(row / temperature) / np.exp(row / temperature).sum() for row in (full, language.slim(text)))
            deviations += float(np.abs(p - q).sum()) / 2
        text.append(token)
    return deviations, (one.stats.deviation or 0.0) * n


def answers(n: int) -> int:
    """How many answers of `n` tokens to look at."""
    return min(30, max(6, 600 // n))


@pytest.mark.parametrize("n_bytes", [0, 10**9], ids=["audits of few rows", "audits of all rows"])
@pytest.mark.parametrize("draft_tokens", [3, 8, None])
@pytest.mark.parametrize("drafter", DRAFTERS, ids=lambda drafter: drafter.__name__)
def test_a_slim_tier_that_always_deviates_costs_the_budget_and_two_tokens_at_most(
    drafter: Callable[[fakes.Language], Drafter], draft_tokens: int | None, n_bytes: int
) -> None:
    language = Hopeless()
    for n in LENGTHS:
        one = engine(language, drafter(language), 0.05, n_bytes, draft_tokens=draft_tokens)
        deviations, reported = answer(one, n)
        assert deviations <= 0.05 * n + 2 + 1e-6, f"{n} tokens"
        assert reported >= deviations - 1e-6, f"{n} tokens"


@pytest.mark.parametrize("draft_tokens", [3, None])
def test_the_same_at_a_temperature_where_nothing_is_taken_back(draft_tokens: int | None) -> None:
    language = Hopeless()
    for n in LENGTHS:
        one = engine(language, fakes.slim_like(language), 0.05, draft_tokens=draft_tokens)
        deviations, reported = answer(one, n, temperature=0.7)
        assert deviations <= 0.05 * n + 2 + 1e-6
        assert reported >= deviations - 1e-4
        assert one.stats.passes["slim"].calls > 0, "the slim tier was never asked: this test would check nothing"


@pytest.mark.parametrize("n", LENGTHS)
def test_a_slim_tier_that_often_deviates_keeps_the_budget_in_every_answer(n: int) -> None:
    """Several answers, each with a fresh budget: their sum is not the criterion, each of them is."""
    for deviating in (0.2, 0.5):
        language = Hopeless(deviating)
        one = engine(language, fakes.slim_like(language), 0.02, draft_tokens=3)
        for prompt in range(answers(n)):
            deviations, _ = answer(one, n, (prompt % 10, prompt // 10, 3))
            assert deviations <= 0.02 * n + 2 + 1e-6


@pytest.mark.parametrize("n", LENGTHS)
def test_statistics_of_what_no_audit_saw_are_not_optimistic(n: int) -> None:
    """Without a limit, whole answers are emitted unaudited: over several, no less is reported than deviates."""
    for deviating in (0.1, 0.5, 1.0):
        language = Hopeless(deviating)
        one = engine(language, fakes.slim_like(language), None, draft_tokens=3)
        counts = [answer(one, n, (prompt % 10, prompt // 10, 3)) for prompt in range(answers(n))]
        assert sum(reported for _, reported in counts) >= sum(deviations for deviations, _ in counts)


@pytest.mark.parametrize("drafter", DRAFTERS, ids=lambda drafter: drafter.__name__)
def test_savings_of_earlier_answers_do_not_let_one_answer_deviate_beyond_its_length(
    drafter: Callable[[fakes.Language], Drafter],
) -> None:
    """Without a seed, credit lasts from answer to answer: here 13.8 deviations are saved."""
    language = Hopeless()
    for n in LENGTHS:
        one = engine(language, drafter(language), 0.1, draft_tokens=3)
        one.budget.earn(10**6)
        text, deviations = [1, 2, 3], 0
        for step in one.generate(text, max_tokens=n):
            for token in step.tokens:
                deviations += token != int(language.full(text).argmax())
                text = [*text, token]
        assert deviations <= 0.1 * n + 2


@pytest.mark.parametrize("rule", [LAX, ConfidenceRule(0.5, 0.3)], ids=str)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_budget_of_nothing_lets_no_decision_of_the_slim_tier_out(rule: Rule, temperature: float) -> None:
    language = Hopeless()
    for n in LENGTHS:
        one = engine(language, fakes.slim_like(language), 0.0, draft_tokens=3, rule=rule)
        assert answer(one, n, temperature=temperature) == (0.0, 0.0)


def test_a_good_slim_tier_soon_decides_most_tokens_of_a_fresh_answer() -> None:
    language = Hopeless(0.0)
    one = engine(language, fakes.slim_like(language), 0.05, draft_tokens=3)
    assert answer(one, 200)[0] == 0
    assert one.stats.passes["full"].calls + one.stats.passes["resume"].calls < 25
    assert one.stats.max_in_flight >= 16
