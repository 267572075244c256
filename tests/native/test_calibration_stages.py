"""Comparing modes on recorded answers: a good slim tier pays where passes are cheap, a bad one never does."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from via_sd_local.calibration import summary
from via_sd_local.calibration.recording import Recorded, Recording
from via_sd_local.calibration.stages.comparison import EXACT_RULES, Comparison, Grid, compare
from via_sd_local.calibration.thresholds import candidates
from via_sd_local.calibration.tier_distributions import TierDistributions
from via_sd_local.calibration.top_logits import TopLogits
from via_sd_local.engine.costs import Costs
from via_sd_local.engine.policy import Mode
from via_sd_local.json_form import from_json, to_json
from via_sd_local.profiles.profile import Level

N_VOCAB = 16
FLAT = {"draft": {1: 0.02}, "full": {1: 1.0, 32: 1.1}, "slim": {1: 0.3, 32: 0.33}, "resume": {1: 0.5, 32: 0.55}}
COSTS = {
    "flat": FLAT,
    "dear slim tier": FLAT | {"slim": {1: 3.0, 32: 3.3}},
    "dear draft": FLAT | {"draft": {1: 0.9}},
}


# enough rules to see what there is to see, in a fraction of the time
GRID = Grid((0.02, 0.05), EXACT_RULES[::4], lambda kind: candidates(kind)[::5])


def tops(random: np.random.Generator, best: list[int], confidence: list[float]) -> TopLogits:
    logits = random.normal(size=(len(best), N_VOCAB)).astype(np.float32)
    logits[range(len(best)), best] = -30
    rest = np.log(np.exp(logits).sum(axis=1))
    logits[range(len(best)), best] = rest + np.log(np.array(confidence) / (1 - np.array(confidence)))
    return TopLogits.from_logits(logits)


def answer(random: np.random.Generator, slim: float, draft: float, n: int = 100) -> Recorded:
    """n tokens, of which slim tier and draft get these shares right; where the slim tier is wrong, it is unsure."""
    tokens = random.integers(0, N_VOCAB, n).tolist()
    right = random.random(n) < slim
    sure = np.where(right, random.uniform(0.6, 0.99, n), random.uniform(0.2, 0.45, n)).tolist()
    other = [(token + 1) % N_VOCAB for token in tokens]
    says = [t if ok else o for t, o, ok in zip(tokens, other, right, strict=True)]
    drafts = [t if random.random() < draft else (t + 2) % N_VOCAB for t in tokens]
    full = tops(random, tokens, [0.9] * n)
    return Recorded([0], tokens, full, tops(random, says, sure), tops(random, drafts, [0.8] * n))


def recording(seed: int, *, slim: float = 0.95, draft: float = 0.8, answers: int = 6) -> Recording:
    random = np.random.default_rng(seed)
    return Recording([answer(random, slim, draft) for _ in range(answers)])


@cache
def compared(costs: str = "flat", draft: float = 0.8) -> Comparison:
    return compare(recording(1, draft=draft), recording(2, draft=draft), Costs(COSTS[costs]), GRID)


def test_a_cheap_and_honest_slim_tier_pays_within_a_budget() -> None:
    got = compared()
    assert got.verdict.pays
    best = got.levels[-1].best
    assert best is not None
    assert best.tokens_per_second is not None
    assert best.tokens_per_second > 1.1 * (got.speeds.sd or 0)
    assert best.tokens == 6 * 99
    assert best.deviations / best.tokens < best.bound <= 0.05


def test_a_dear_slim_tier_does_not_pay_at_any_level() -> None:
    got = compared("dear slim tier")
    assert got.verdict.lossless is Mode.SD
    assert {level.mode for level in got.levels} == {"sd"}
    assert not got.verdict.pays


def test_a_draft_that_is_always_wrong_makes_plain_decoding_the_advice() -> None:
    assert compared("dear draft", draft=0.0).verdict.lossless is Mode.PLAIN


def test_larger_budgets_are_never_slower() -> None:
    speeds = [level.best.tokens_per_second or 0.0 for level in compared().levels if level.best is not None]
    assert len(speeds) == 2
    assert speeds == sorted(speeds)


def test_without_a_draft_or_slim_tier_only_what_is_there_is_compared() -> None:
    full = recording(1)
    alone = Recording([Recorded(a.prompt, a.tokens, a.full, a.slim, None) for a in full.answers])
    got = compare(alone, alone, Costs(FLAT), GRID)
    assert (got.speeds.sd, got.speeds.exact, got.levels) == (None, None, ())
    no_slim = Recording([Recorded(a.prompt, a.tokens, a.full, None, a.draft) for a in full.answers])
    got = compare(no_slim, no_slim, Costs(FLAT), GRID)
    assert got.speeds.sd is not None
    assert (got.speeds.exact, got.levels) == (None, ())


def test_agreements_count_every_position() -> None:
    tiers = TierDistributions.of(recording(3, slim=1.0, draft=0.0))
    got = {name: (agreement.share, agreement.tokens) for name, agreement in tiers.agreements().items()}
    assert got == {"p-q": (0.0, 600), "q'-q": (1.0, 600), "p-q'": (0.0, 600)}


def test_delta_is_positive_for_a_judge_in_between_and_negative_for_one_aside() -> None:
    """Between: q' is half p, half q. Aside: q' is of another opinion than both."""
    random = np.random.default_rng(4)
    q, p = random.dirichlet(np.full(N_VOCAB, 0.3), (2, 200))
    aside = random.dirichlet(np.full(N_VOCAB, 0.3), 200)

    def delta(u: np.ndarray) -> float:  # type: ignore[type-arg]
        full, draft, slim = (TopLogits.from_logits(np.log(x + 1e-9).astype(np.float32)) for x in (q, p, u))
        got = TierDistributions(full, slim, draft).delta()
        assert got is not None
        assert got.delta == pytest.approx(got.q_p - got.u_p - got.q_u, abs=2e-6)
        return got.delta

    assert delta((p + q) / 2) > 0 > delta(aside)
    assert delta(q) == pytest.approx(0, abs=1e-5)


def test_a_comparison_becomes_a_valid_level_of_the_file() -> None:
    for level in compared().levels:
        assert from_json(Level, json.loads(json.dumps(to_json(level)))) == level
        assert summary._level_line(level)
