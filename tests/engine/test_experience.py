"""What a pace has learned, as the prior of another one."""

from __future__ import annotations

import json

import pytest

from via_sd_local.engine.costs import Costs
from via_sd_local.engine.experience import Experience, Tally, Yield
from via_sd_local.engine.pace import Pace
from via_sd_local.json_form import from_json, to_json

FLAT = {1: 0.1, 32: 0.13}
ROUTES = ("slim", "full")


def pace() -> Pace:
    tiers = {"full": FLAT, "slim": {1: 0.05, 32: 0.06}, "resume": {1: 0.06, 32: 0.09}, "draft": {1: 0.01, 2: 0.01}}
    return Pace(Costs(tiers), routes=ROUTES)


def taught() -> Pace:
    """Drafts are right if their confidence is high, half of the blocks escalate, slim first yields twice as much."""
    one = pace()
    for _ in range(100):
        one.observe("full", [0.95] * 4, 4, 4)
        one.observe("full", [0.3] * 4, 4, 0)
        one.observe_slim([0.95] * 4, False, True)
        one.observe_slim([0.3] * 4, True, False)
        one.observe_yield("slim", 8, 1.0)
        one.observe_yield("full", 4, 1.0)
    return one


def recalled(experience: Experience) -> Pace:
    one = pace()
    one.recall(experience)
    return one


def test_a_pace_that_recalls_judges_as_the_one_that_learned() -> None:
    old, new, blank = taught(), recalled(taught().experience), pace()
    for confidence in (0.3, 0.95):
        assert new.acceptance["full"].of(confidence) == pytest.approx(old.acceptance["full"].of(confidence))
    assert new.acceptance["full"].of(0.3) < 0.1 < 0.9 < new.acceptance["full"].of(0.95)
    assert new.escalation.value == pytest.approx(old.escalation.value)
    assert new.bonus.value == pytest.approx(old.bonus.value) != pytest.approx(blank.bonus.value)
    for length in (1, 8):
        promises = [one.promise(length, "full") for one in (old, new, blank)]
        assert promises[0] == pytest.approx(promises[1]) != pytest.approx(promises[2])


def test_what_is_recalled_weighs_little_against_what_is_seen() -> None:
    one = recalled(taught().experience)
    for _ in range(60):
        one.observe("full", [0.95], 1, 0)
    assert one.acceptance["full"].of(0.95) < 0.25


def test_no_route_of_mode_exact_has_to_be_tried_first_where_both_are_known() -> None:
    one = recalled(taught().experience)
    assert [one.choose_by_yield() for _ in range(4)] == ["slim"] * 4
    blank = pace()
    assert blank.choose_by_yield() == "full"
    for yields in ({}, {"slim": Yield(8, 1)}):
        blank._race.recall(yields)
        assert blank.choose_by_yield() == "full"


def test_experience_survives_json() -> None:
    experience = taught().experience
    assert from_json(Experience, json.loads(json.dumps(to_json(experience)))) == experience


@pytest.mark.parametrize("wrong", [(2.0, 1.0), (0.0, 0.0), (-1.0, 1.0), (float("nan"), 1.0), (1.0, float("inf"))])
def test_impossible_numbers_are_refused(wrong: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="is no share"):
        Tally(*wrong)


def test_classes_that_another_version_had_are_left_out() -> None:
    other = taught().experience
    fewer = Experience(other.acceptance, other.escalation, other.escalations[:3], other.bonus, other.yields)
    assert recalled(fewer)._escalations.tallies == pace()._escalations.tallies
