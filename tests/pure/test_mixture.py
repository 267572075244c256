"""The paper's mixture: its masses follow from p and q' alone, and samples are distributed as the equation says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import chisquare

from via_sd_local.arrays import Floats
from via_sd_local.engine.gate import PaperRule, Region
from via_sd_local.engine.mixture import mixed, region_masses, sample_mixture
from via_sd_local.sampling.distribution import Distribution
from via_sd_local.sampling.sampler import TemperatureSampler
from via_sd_local.tiers.drafter import Draft

P = np.array([0.3, 0.25, 0.25, 0.15, 0.05])
SLIM = np.array([0.45, 0.3, 0.15, 0.06, 0.04])  # r is 1, 0.67, 0.33, 0.13, 0.09
RULE = PaperRule(0.4, 0.75)  # A from 0.6 on, B from 0.25 on: A is {0, 1}, B is {2}, C is {3, 4}
DELTA1, DELTA2 = 0.25 / 0.8, 0.2
NEVER_ENDS: frozenset[int] = frozenset()


def distribution(probabilities: np.ndarray) -> Distribution:
    return Distribution(np.arange(len(probabilities), dtype=np.int32), probabilities)


def rows(*probabilities: np.ndarray) -> Floats:
    return np.log(np.stack(probabilities)).astype(np.float32)


def test_the_masses_are_the_probabilities_of_the_regions_under_p() -> None:
    assert region_masses(RULE, distribution(P), rows(SLIM)[0]) == pytest.approx((DELTA1, DELTA2), abs=1e-6)
    best, worst = (Distribution(np.array([token], np.int32), np.ones(1)) for token in (0, 4))
    assert region_masses(RULE, best, rows(SLIM)[0]) == (0, 0)
    assert region_masses(RULE, worst, rows(SLIM)[0]) == (0, 1)


def test_distributions_over_different_tokens_are_mixed() -> None:
    a = Distribution(np.array([7, 2], np.int32), np.array([0.5, 0.5]))
    b = Distribution(np.array([2, 3], np.int32), np.array([0.25, 0.75]))
    both = mixed(a, b, 0.2)
    assert both.tokens.tolist() == [2, 3, 7]
    assert both.probabilities == pytest.approx([0.45, 0.15, 0.4])


def fits(counts: Sequence[int], expected: np.ndarray) -> bool:
    return bool(chisquare(counts, sum(counts) * expected / expected.sum()).pvalue > 1e-3)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_what_the_slim_tier_decides_is_the_bracket_of_the_mixture(temperature: float) -> None:
    """Escalations come as often as delta2 says, whatever was drafted; all other tokens are (1 - d1) p + d1 q'."""
    slim = SLIM ** (1 / temperature) / (SLIM ** (1 / temperature)).sum()
    sampler, proposal = TemperatureSampler(temperature, 3), distribution(P)
    decided, escalated, n = np.zeros(5, int), np.zeros(5, int), 6000
    for _ in range(n):
        drafted = proposal.draw(sampler.random.random())
        draft = Draft([drafted], [float(P[drafted])], [proposal])
        judgement = sample_mixture(RULE, draft, rows(SLIM, SLIM), sampler, NEVER_ENDS, 16)
        if judgement.unsure:
            assert judgement.verdict.region is Region.C
            escalated[drafted] += 1
        else:
            decided[drafted if judgement.verdict.kept else judgement.verdict.token] += 1
    assert escalated.sum() / n == pytest.approx(DELTA2, abs=0.02)
    assert fits(escalated, P)
    assert fits(decided, (1 - DELTA1) * P + DELTA1 * slim)
    assert not fits(decided, P)
    assert not fits(decided, slim)


def test_no_more_tokens_are_kept_than_may_wait_for_an_audit() -> None:
    sampler = TemperatureSampler(1.0, 1)
    sure = np.array([0.96, 0.01, 0.01, 0.01, 0.01])
    verdict = sample_mixture(RULE, Draft([0, 0, 0]), rows(*[sure] * 4), sampler, NEVER_ENDS, 2).verdict
    assert (verdict.kept, verdict.region) == (2, Region.C)
    ended = sample_mixture(RULE, Draft([0, 0, 0]), rows(*[sure] * 4), sampler, frozenset({0}), 9).verdict
    assert (ended.kept, ended.region, ended.sure) == (1, Region.A, False)
