"""Lengths of drafts by measured cost and running acceptance; no clock is involved, costs are given."""

from __future__ import annotations

import fakes
import numpy as np
import pytest

from via_sd_local.engine.acceptance_rate import AcceptanceRate
from via_sd_local.engine.costs import Costs
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.pace import Pace
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.tiers.prompt_lookup import PromptLookup

# milliseconds of a Q4_0 model of 1.5 billion parameters on two threads of one CPU
STAIRCASE = {1: 119, 2: 124, 3: 143, 4: 107, 5: 144, 8: 195, 16: 268, 32: 521}
FLAT = {1: 100, 32: 130}


def costs(full: dict[int, float], draft: float, **kinds: dict[int, float]) -> Costs:
    table = {"full": full, "draft": {1: draft, 2: draft}, **kinds}
    return Costs({kind: {k: v / 1000 for k, v in row.items()} for kind, row in table.items()})


def taught(pace: Pace, acceptance: float, n: int = 400, route: str = "full") -> Pace:
    """A pace whose drafter is right with this probability."""
    random = np.random.default_rng(0)
    for _ in range(n):
        right = random.random(4) < acceptance
        pace.observe(route, [], 4, int(np.argmin([*right, False])))
    return pace


#
# lengths
#


@pytest.mark.parametrize("acceptance", [0.7, 0.8, 0.9])
def test_the_length_falls_on_the_step_of_the_staircase(acceptance: float) -> None:
    """A pass over 4 tokens is the cheapest one: 3 are drafted."""
    assert taught(Pace(costs(STAIRCASE, 12)), acceptance).next_length(100) == 3


def test_flat_batches_and_good_drafts_make_long_ones() -> None:
    lengths = [taught(Pace(costs(FLAT, 2)), acceptance).next_length(100) for acceptance in (0.5, 0.8, 0.95)]
    assert lengths == sorted(lengths)
    assert lengths[0] >= 3
    assert lengths[-1] >= 12


def test_a_length_keeps_to_the_room() -> None:
    pace = taught(Pace(costs(FLAT, 2)), 0.95)
    assert pace.next_length(2) <= 2
    assert pace.next_length(0) == 0
    assert Pace(Costs()).next_length(2) == 2


def test_where_drafting_loses_it_is_off_but_for_a_probe_now_and_then() -> None:
    """A drafter as dear as the verifier cannot win."""
    pace = taught(Pace(costs(FLAT, 100)), 0.8)
    lengths = [pace.next_length(100) for _ in range(1000)]
    tries = [i for i, length in enumerate(lengths) if length > 0]
    assert tries == [15, 47, *range(111, 1000, 64)]  # rarer and rarer, but not too rare
    assert (pace.off, pace.probes) == (1000 - len(tries), len(tries))


def test_a_drafter_that_became_good_is_used_again() -> None:
    pace = taught(Pace(costs(FLAT, 10)), 0.02)
    assert [pace.next_length(100) for _ in range(15)] == [0] * 15
    assert pace.next_length(100) > 0
    assert taught(pace, 0.9).next_length(100) > 0
    assert taught(pace, 0.9).next_length(100) > 0


def test_a_wrong_drafter_is_switched_off() -> None:
    assert taught(Pace(costs(STAIRCASE, 12)), 0.02).next_length(100) == 0


def test_a_free_drafter_needs_no_costs_of_its_own() -> None:
    table = Costs({"full": {k: v / 1000 for k, v in FLAT.items()}})
    assert taught(Pace(table, free=True), 0.9).next_length(100) == 16
    assert not Pace(table).knows


def test_a_slim_first_check_pays_for_its_escalations() -> None:
    table = costs(FLAT, 5, slim={1: 50, 32: 60}, resume={1: 60, 32: 90})
    never, always = (taught(Pace(table, routes=("slim",)), 0.8, route="slim") for _ in range(2))
    for _ in range(300):
        never.observe_slim([], False, True)
        always.observe_slim([], True, True)
    assert never.promise(4, "slim") > 1.3 * always.promise(4, "slim")


def slim_pace() -> Pace:
    """Sure drafts never escalate, unsure ones always do; escalating costs more than the full tier at once."""
    pace = Pace(costs(FLAT, 5, slim={1: 50, 32: 60}, resume={1: 60, 32: 70}), routes=("slim", "full"))
    for route in ("slim", "full"):
        taught(pace, 0.8, route=route)
    pace.next_length(100)
    for _ in range(200):
        pace.observe_slim([0.99, 0.98], False, True)
        pace.observe_slim([0.99, 0.3], True, True)
    return pace


def test_a_sure_draft_goes_to_the_slim_tier_and_an_unsure_one_to_the_full_one_at_once() -> None:
    pace = slim_pace()
    assert pace.choose_route([0.99, 0.99, 0.98], 3, 0) == "slim"
    assert pace.choose_route([0.99, 0.3, 0.98], 3, 0) == "full"


def test_the_slim_tier_is_tried_now_and_then_to_learn() -> None:
    pace = slim_pace()
    tries = [pace.choose_route([0.3], 1, 0) for _ in range(100)]
    assert tries.count("slim") == 4
    for _ in range(200):
        pace.observe_slim([0.3], False, True)
    assert pace.choose_route([0.3], 1, 0) == "slim"


def test_cells_that_wait_for_the_full_tier_count_against_it() -> None:
    """The more a full pass has to compute again, the more the slim tier, with resume after it, is worth."""
    table = costs(STAIRCASE, 9, slim={1: 40, 32: 300}, resume={1: 50, 16: 120, 32: 240})
    pace = Pace(table, routes=("slim", "full"))
    for route in ("slim", "full"):
        taught(pace, 0.8, route=route)
    pace.next_length(100)
    for _ in range(20):
        pace.observe_slim([], True, True)
    assert [pace.choose_route([], 3, pending) for pending in (0, 28)] == ["full", "slim"]


def test_a_slim_tier_that_adds_no_token_of_its_own_is_worth_less() -> None:
    table = costs(FLAT, 5, slim={1: 50}, resume={1: 60})
    adds, none = (taught(Pace(table, routes=("slim",)), 0.8, route="slim") for _ in range(2))
    for _ in range(300):
        adds.observe_slim([], False, True)
        none.observe_slim([], False, False)
    assert adds.promise(4, "slim") == pytest.approx(
        none.promise(4, "slim") * (0.8 + 0.64 + 0.512 + 0.41 + 1) / 2.36, rel=0.1
    )


def test_lengths_are_planned_for_the_tier_that_sees_drafts_first() -> None:
    """The slim tier is as good as free, but nothing is kept that it saw: drafts go to the full one, and are long."""
    table = costs(FLAT, 2, slim={1: 1}, resume={1: 100})
    pace = Pace(table, routes=("slim", "full"))
    taught(taught(pace, 0.9), 0.02, route="slim")
    for _ in range(300):
        pace.observe_slim([], True, True)
    pace.next_length(100)
    assert pace.choose_route([], 3, 0) == "full"
    assert pace.next_length(100) == taught(Pace(table), 0.9).next_length(100)


def test_a_budget_makes_a_new_engine_expect_that_wrong_tokens_are_let_through() -> None:
    strict, lenient = (Pace(costs(FLAT, 5), max_deviation=share) for share in (0.0, 0.12))
    assert lenient.acceptance["full"].of(0.1) > 2 * strict.acceptance["full"].of(0.1)
    assert strict.acceptance["full"].of(0.1) == pytest.approx(0.1)
    assert lenient.next_length(100) > strict.next_length(100)


def test_without_costs_of_the_slim_tier_it_is_asked_first() -> None:
    assert Pace(costs(FLAT, 5), routes=("slim", "full")).choose_route([0.1], 1, 0) == "slim"


#
# early stop
#


def test_a_draft_goes_on_while_the_drafter_is_sure_and_stops_when_it_is_not() -> None:
    pace = Pace(costs(FLAT, 8))
    for _ in range(300):
        pace.observe("full", [0.99], 1, 1)
        pace.observe("full", [0.1], 1, 0)
    pace.next_length(100)
    assert pace.wants_more([0.99] * 5)
    assert not pace.wants_more([0.99, 0.1])


def test_a_cheaper_step_ahead_is_worth_a_token_more() -> None:
    """From 2 drafts (3 tokens, 143 ms) on, a third one makes the pass cheaper, however unsure the drafter is."""
    pace = taught(Pace(costs(STAIRCASE, 12)), 0.8)
    for _ in range(300):
        pace.observe("full", [0.1], 1, 0)
    pace.next_length(100)
    assert pace.wants_more([0.1, 0.1])
    assert not pace.wants_more([0.1, 0.1, 0.1])


def test_acceptance_is_learned_by_class_of_confidence() -> None:
    acceptance = AcceptanceRate()
    for _ in range(300):
        acceptance.observe([0.95, 0.3], 2, 1)  # the sure one right, the unsure one wrong
    assert acceptance.of(0.95) > 0.99
    assert acceptance.of(0.3) < 0.01
    assert acceptance.mean == pytest.approx(0.5, abs=0.02)


def test_tokens_behind_a_rejected_one_say_nothing() -> None:
    acceptance = AcceptanceRate()
    for _ in range(300):
        acceptance.observe([0.95, 0.5, 0.5], 3, 0)
    assert acceptance.of(0.95) < 0.01
    assert acceptance.of(0.5) == pytest.approx(0.5)


#
# in the engine
#


@pytest.mark.parametrize("mode", [Mode.SD, Mode.EXACT], ids=lambda mode: mode.value)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_automatic_lengths_change_no_lossless_text(mode: Mode, temperature: float) -> None:
    """At a temperature the target's own draws are compared with the drafts, so that time cannot show in the text."""
    for seed in range(3):
        language = fakes.RandomLanguage(seed)
        params = SamplingParams(temperature=temperature, seed=seed)
        expected = fakes.expected_text(language, [1, 2, 3], 40, sampling=params)
        table = costs(dict.fromkeys(range(1, 40), 10), 1)
        engine = Engine(fakes.fake_verifier(language), fakes.fake_model_drafter(language), Policy(mode), table)
        steps = engine.generate([1, 2, 3], max_tokens=40, sampling=params)
        assert [token for step in steps for token in step.tokens] == expected
        assert engine.stats.drafted > 0
        if mode is Mode.SD:  # the drafter has the target's logits, and draws alike
            assert engine.stats.accepted == engine.stats.drafted


def test_a_fixed_length_needs_no_pace() -> None:
    language = fakes.RandomLanguage(0)
    assert Engine(fakes.fake_verifier(language), fakes.oracle(language), Policy(Mode.SD, 3)).pace is None


def test_the_engine_teaches_its_pace() -> None:
    language = fakes.RandomLanguage(0)
    engine = Engine(fakes.fake_verifier(language), fakes.always_wrong(language), Policy(Mode.SD))
    assert engine.pace is not None
    for _ in range(20):
        list(engine.generate([1, 2, 3], max_tokens=40))
    assert engine.pace.costs.knows("full")
    assert engine.pace.acceptance["full"].mean < 0.1


def test_a_draft_model_that_was_never_used_is_said_to_be_and_why() -> None:
    language = fakes.RandomLanguage(0)
    engine = Engine(
        fakes.fake_verifier(language), fakes.fake_model_drafter(language), Policy(Mode.SD), costs(FLAT, 200)
    )
    engine.pace.costs.frozen = True  # type: ignore[union-attr]
    list(engine.generate([1, 2, 3], max_tokens=12))
    assert engine.stats.drafted == 0
    reason = "a block of 2 costs 3.0 × one token and yields 1.6 tokens"  # noqa: RUF001
    assert engine.why_no_drafts == engine.stats.to_json()["drafting_off"] == reason
    list(engine.generate([1, 2, 3], max_tokens=40))  # one probe
    assert engine.why_no_drafts is None
    lookup = Engine(fakes.fake_verifier(language), PromptLookup(), Policy(Mode.SD, 3))
    list(lookup.generate([1, 2, 3], max_tokens=12))
    assert lookup.why_no_drafts is None


def test_a_slim_tier_that_lets_more_through_is_worth_more_than_it_saves() -> None:
    """It may cost more than the full one, if it keeps drafts that the full one would end."""
    table = costs(FLAT, 5, slim={1: 90, 32: 120}, resume={1: 60, 16: 80, 32: 100})
    for kept, first in ((0.95, "slim"), (0.5, "full")):
        pace = taught(taught(Pace(table, routes=("slim", "full")), 0.5), kept, route="slim")
        for _ in range(100):
            pace.observe_slim([], False, True)
        pace.next_length(100)
        assert pace.choose_route([], 8, 0) == first


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_seed_gives_the_same_tiered_text_whatever_was_learned_before(temperature: float) -> None:
    """What passes cost by the clock, and how other texts went, steer lengths and tiers; a seed keeps them out."""
    language = fakes.RandomLanguage(5)
    table = costs(FLAT, 5, slim={1: 50, 32: 60}, resume={1: 60, 32: 90})
    texts = set()
    for others, slow in ((0, 1.0), (5, 1.0), (5, 40.0)):
        one = Engine(fakes.fake_verifier(language), fakes.sometimes_right(language), Policy(Mode.TIERED), table)
        for start in range(others):
            list(one.generate([start, 2, 3], max_tokens=30))
            for pace in one.paces:
                pace.costs.observe("slim", 4, slow)
        params = SamplingParams(temperature=temperature, seed=5)
        texts.add(
            tuple(token for step in one.generate([1, 2, 3], max_tokens=40, sampling=params) for token in step.tokens)
        )
        table = costs(FLAT, 5, slim={1: 50, 32: 60}, resume={1: 60, 32: 90})
    assert len(texts) == 1
