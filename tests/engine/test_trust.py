"""What is known of the slim tier's decisions, and for how long it is tried though little is."""

from __future__ import annotations

import pytest

from via_sd_local.engine.gate import JointRule
from via_sd_local.engine.trust import SlimRecord, SlimTrust


@pytest.mark.parametrize(("hits", "n"), [(0, 4), (1, 10), (5, 50), (0, 50), (0.7, 20)])
def test_the_rate_is_the_one_that_the_share_is_1_28_standard_deviations_below(
    hits: float, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("via_sd_local.engine.trust._FORGET", 1.0)
    record = SlimRecord()
    record.observe([hits / 5] * 5 + [0.0] * (n - 5) if n > 5 else [hits / n] * n)
    rate = record.rate
    assert rate - hits / n == pytest.approx(1.28 * (rate * (1 - rate) / n) ** 0.5)


def test_what_was_never_audited_is_taken_to_deviate_always() -> None:
    record = SlimRecord()
    assert record.rate == pytest.approx(1)
    record.observe([1.0] * 9)
    assert record.rate == pytest.approx(1)


def test_a_record_forgets_so_that_a_slim_tier_that_improves_is_trusted_again() -> None:
    record = SlimRecord()
    record.observe([1.0] * 50)
    assert record.rate == pytest.approx(1.0)
    record.observe([0.0] * 1000)
    assert record.rate < 0.02


def test_a_tighter_rule_is_known_to_be_no_worse_and_is_tried_for_itself() -> None:
    trust = SlimTrust(JointRule(0.5, 0.5))
    trust.observe([0.0] * 100)
    known = trust.rate
    assert not trust.decide_trial()
    trust.tighten()
    assert (trust.rule, trust.rate) == (JointRule(0.75, 0.75), known)
    assert trust.decide_trial()
    trust.observe([1.0] * 20)
    assert trust.rate == known
    assert not trust.decide_trial()


def test_after_four_tightenings_the_slim_tier_decides_nothing_until_the_next_answer() -> None:
    trust = SlimTrust(JointRule(0.5, 0.5))
    for _ in range(6):
        trust.tighten()
    assert not trust.decides
    trust.relax()
    assert trust.decides
    assert trust.rule == JointRule(0.9375, 0.9375)
    for _ in range(6):
        trust.relax()
    assert trust.rule == JointRule(0.5, 0.5)


def test_a_slim_tier_that_is_known_to_deviate_is_tried_ever_more_rarely() -> None:
    trust = SlimTrust(JointRule(0.5, 0.5))
    trust.observe([1.0] * 20)
    trials = [n for n in range(1, 200) if trust.decide_trial()]
    assert trials == [4, 12, 28, 60, 124, 188]
