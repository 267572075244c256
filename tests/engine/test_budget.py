"""The budget of deviations: what the full verifier lets through, and that it is never more than was permitted."""

from __future__ import annotations

import math
from typing import Any

import fakes
import numpy as np
import pytest

from via_sd_local.engine.budget import DeviationBudget
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import JointRule
from via_sd_local.engine.pace import Pace
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.engine.steps import Tier
from via_sd_local.sampling.acceptance import verify
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.sampling.sampler import TemperatureSampler

COUNT = [n % 10 for n in range(400)]
START = COUNT[:3]


def rich(share: float = 0.1) -> DeviationBudget:
    budget = DeviationBudget(share)
    budget.earn(10**6)
    return budget


@pytest.mark.parametrize("share", [None, 0.0])
def test_without_a_budget_nothing_is_let_through(share: float | None) -> None:
    budget = DeviationBudget(share)
    budget.earn(1000)
    assert not budget.try_spend(1e-6)
    assert budget.least_ratio == 1


def test_a_deviation_has_to_be_earned_first() -> None:
    budget = DeviationBudget(0.1)
    budget.earn(9)
    assert not budget.try_spend(0.0)
    budget.earn(2)
    assert budget.try_spend(0.0)
    assert budget.credit == pytest.approx(0.1)


def test_the_more_credit_is_saved_up_the_less_a_token_needs() -> None:
    budget, needed = DeviationBudget(0.1), []
    for _ in range(60):
        budget.earn(1)
        needed.append(budget.least_ratio)
    assert needed == sorted(needed, reverse=True)
    assert needed[0] == 1
    assert needed[-1] == pytest.approx(0.1)
    assert rich().try_spend(-math.log(0.11))
    assert not rich().try_spend(-math.log(0.09))


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
def test_deviations_never_exceed_the_share_however_many_are_offered(share: float) -> None:
    budget, random, deviations = DeviationBudget(share), np.random.default_rng(0), 0
    for token in range(1, 5000):
        deviations += budget.try_spend(float(random.exponential(0.5)))
        budget.earn(1)
        assert deviations <= share * token
    assert deviations > 0.9 * share * 5000


def test_savings_are_limited_so_that_deviations_do_not_come_in_bursts() -> None:
    budget = rich(0.05)
    burst = sum(budget.try_spend(0.0) for _ in range(1000))
    assert burst <= 1 + 0.05 * 128


def test_one_deviation_too_many_is_no_evidence_but_two_are() -> None:
    budget = DeviationBudget(0.1)
    budget.spend(1)
    assert not budget.is_spent
    budget.spend(1)
    assert budget.is_spent
    budget.earn(20)
    assert not budget.is_spent


def test_a_budget_of_nothing_bears_and_covers_nothing_and_no_budget_everything() -> None:
    budget, none = DeviationBudget(0.0), DeviationBudget(None)
    budget.earn(10**6)
    assert budget.is_spent
    assert not budget.bears(0.001, 1000)
    assert not budget.covers(1, 0.001)
    assert budget.covers(0, 1.0)
    none.spend(10)
    assert not none.is_spent
    assert none.bears(100)
    assert none.covers(1000, 1.0)


@pytest.mark.parametrize(
    ("credit", "rate", "tokens"),
    [
        (0.0, 1.0, 2),  # each of them may deviate, and the credit may be overdrawn by two
        (1.0, 1.0, 3),
        (-1.5, 1.0, 0),
        (0.0, 0.1, 10),  # 10 deviate once on average; one standard deviation more is 1.95
        (0.0, 0.02, 50),  # 1.0 + 0.99
        (-1.0, 0.1, 4),  # 0.4 + 0.6
        (0.0, 0.0, 1000),
    ],
)
def test_unaudited_tokens_are_covered_by_credit_at_the_rate_of_deviations_to_expect(
    credit: float, rate: float, tokens: int
) -> None:
    budget = DeviationBudget(0.05)
    budget.spend(-credit)
    assert budget.covers(tokens, rate)
    assert rate == 0 or not budget.covers(tokens + 1, rate)


def test_an_answer_has_an_account_of_its_own_which_earlier_savings_do_not_fill() -> None:
    budget = rich(0.1)
    budget.begin_answer()
    assert not budget.covers(3, 1.0)
    assert [budget.try_spend(0.0) for _ in range(3)] == [True, False, False]
    budget.earn(10)
    assert budget.try_spend(0.0)
    budget.begin_answer()
    assert budget.try_spend(0.0)


#
# the full verifier
#


def decide(draft: list[int], rows: list[int], lets_through: Any, temperature: float = 0.0, end: int = 99) -> list[int]:
    """The full verifier chooses `rows`, at probability 0.6 each."""
    logits = np.stack([fakes.peak(token, 0.6) for token in rows])
    return verify(TemperatureSampler(temperature, 0), draft, [], logits, frozenset({end}), lets_through)


def test_a_draft_token_that_is_let_through_stays_and_the_block_goes_on() -> None:
    asked: list[tuple[int, float]] = []

    def yes(position: int, gap: float) -> bool:
        asked.append((position, gap))
        return True

    assert decide([1, 9, 3], [1, 2, 3, 4], yes) == [1, 9, 3, 4]
    (asked_for,) = asked  # only where the full verifier would choose another
    assert asked_for == (1, pytest.approx(math.log(0.6 / 0.04), rel=1e-3))


def test_what_is_not_let_through_ends_the_block() -> None:
    assert decide([1, 9, 3], [1, 2, 3, 4], lambda *_: False) == [1, 2]


def test_where_a_text_ends_nothing_is_let_through() -> None:
    def never(*_: Any) -> bool:
        raise AssertionError("it was asked")

    assert decide([1, 9], [1, 2, 3], never, end=2) == [1, 2]  # the full verifier ends the text
    assert decide([1, 9], [1, 2, 3], never, end=9) == [1, 2]  # the drafter would


def test_samples_are_never_let_through() -> None:
    calls: list[int] = []
    for _ in range(50):
        decide([1, 9, 3], [1, 2, 3, 4], lambda position, _: bool(calls.append(position)), temperature=1.0)
    assert not calls


#
# the engine
#


def engine(wrong: dict[int, int], share: float | None, mode: Mode = Mode.TIERED, **policy: Any) -> Engine:
    """The full tier counts, the drafter is wrong where said, and drafts of 3 go to the full tier at once."""
    drafter = fakes.scripted({**{n: COUNT[n] for n in range(400)}, **wrong})
    verifier = fakes.fake_verifier(fakes.Script(COUNT), n_ctx=512, mask="2" if mode.uses_slim_tier else None)
    one = Engine(verifier, drafter, Policy(mode, None, JointRule(0.5, 0.5), max_deviation=share, **policy))
    assert one.pace is not None
    one.pace.next_length = lambda room, *_: min(room, 3)  # type: ignore[method-assign]
    one.pace.choose_route = lambda *_: "full"  # type: ignore[method-assign]
    return one


def run(one: Engine, tokens: int, **options: Any) -> tuple[list[int], list[Tier]]:
    steps = list(one.generate(START, max_tokens=tokens, **options))
    return [t for step in steps for t in step.tokens], [t for step in steps for t in step.tiers]


# every fifth draft token is the runner-up of fakes.peak: as good as any other wrong one
WRONG = {n: (COUNT[n] + 1) % 10 for n in range(5, 400, 5)}


def test_tiered_keeps_wrong_drafts_within_its_budget_and_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("via_sd_local.engine.budget._WORST", 0.001)
    one = engine(WRONG, 0.1)
    tokens, tiers = run(one, 300)
    wrong = [i for i, token in enumerate(tokens) if token != COUNT[3 + i]]
    assert 20 < len(wrong) <= 30
    assert one.stats.deviations == {"A": 0, "B": 0}
    assert one.stats.lenient == len(wrong)
    assert one.stats.deviation == one.stats.lenient_deviation == pytest.approx(len(wrong) / 300)
    assert [tiers[i] for i in wrong] == [Tier.DRAFT] * len(wrong)
    assert tiers.count(Tier.DRAFT) == len(wrong)
    assert one.stats.tightened == 0
    strict = engine(WRONG, 0.0)
    assert run(strict, 300)[0] == COUNT[3:303]
    assert strict.stats.passes["full"].calls > one.stats.passes["full"].calls


def test_lenience_needs_no_slim_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mask the full model lets as many tokens through as in tiered where that sends everything to it."""
    monkeypatch.setattr("via_sd_local.engine.budget._WORST", 0.001)
    lenient, tiered = engine(WRONG, 0.1, Mode.LENIENT), engine(WRONG, 0.1)
    tokens, tiers = run(lenient, 300)
    wrong = [i for i, token in enumerate(tokens) if token != COUNT[3 + i]]
    assert 20 < len(wrong) <= 0.1 * 300 + 2
    assert [i for i, tier in enumerate(tiers) if tier is Tier.DRAFT] == wrong
    assert lenient.stats.lenient == len(wrong)
    assert lenient.stats.lenient_deviation == lenient.stats.deviation == pytest.approx(len(wrong) / 300)
    assert lenient.stats.slim_deviation is None
    assert lenient.stats.passes["slim"].calls == 0
    run(tiered, 300)
    assert tiered.stats.lenient == len(wrong)
    assert run(engine(WRONG, 0.0, Mode.LENIENT), 300)[0] == COUNT[3:303]


def test_tiered_says_so_if_it_never_asked_the_slim_tier() -> None:
    one = engine(WRONG, 0.1)
    run(one, 60)
    assert one.why_no_slim == "it would cost more than it saves here"
    run(one, 6)
    assert one.why_no_slim is None  # too short to tell
    broke = engine(WRONG, 0.0)
    run(broke, 60)
    assert broke.why_no_slim == "its deviations would overdraw the budget"
    sd = engine(WRONG, None, Mode.LENIENT)
    run(sd, 60)
    assert sd.why_no_slim is None


def test_tokens_far_from_the_best_are_not_let_through() -> None:
    """The full tier gives its choice 0.9 and the drafted one 0.01."""
    assert run(engine(WRONG, 0.1), 300)[0] == COUNT[3:303]


def test_credit_lasts_from_answer_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("via_sd_local.engine.budget._WORST", 0.001)
    one = engine(WRONG, 0.02)
    counts = [sum(a != b for a, b in zip(run(one, 20)[0], COUNT[3:], strict=False)) for _ in range(15)]
    assert 0 < sum(counts) <= 0.02 * 20 * 15
    assert counts[0] == 0


def test_at_a_temperature_the_full_tier_stays_lossless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("via_sd_local.engine.budget._WORST", 0.001)
    params = SamplingParams(temperature=0.7, seed=3)
    lenient, strict = (run(engine(WRONG, share), 60, sampling=params)[0] for share in (0.3, 0.0))
    assert lenient == strict


def test_a_spent_budget_keeps_drafts_from_the_slim_tier() -> None:
    wrong = {n: ((COUNT[n] + 1) % 10, 0.999) for n in range(4, 400)}
    drafter = fakes.scripted({n: token for n, (token, _) in wrong.items()})
    one = Engine(
        fakes.fake_verifier(fakes.Script(COUNT, wrong), n_ctx=512),
        drafter,
        Policy(Mode.TIERED, 3, JointRule(0.5, 0.5), max_deviation=0.05, audit_every=4),
    )
    tokens, _ = run(one, 300)
    wrong_share = sum(a != b for a, b in zip(tokens, COUNT[3:], strict=False)) / 300
    assert wrong_share < 0.1
    assert isinstance(one.pace, Pace) is False
