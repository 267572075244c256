"""The verdict: which mode pays, from predicted speeds alone."""

from __future__ import annotations

import pytest

from via_sd_local.calibration.recommendation import decide
from via_sd_local.engine.policy import Mode

PLAIN, SD, EXACT, TIERED = Mode.PLAIN, Mode.SD, Mode.EXACT, Mode.TIERED


@pytest.mark.parametrize(
    ("plain", "sd", "exact", "lossless"),
    [
        (10.0, None, None, PLAIN),
        (10.0, 9.0, 8.0, PLAIN),
        (10.0, 20.0, 15.0, SD),
        (10.0, 20.0, 25.0, EXACT),
        (10.0, 10.1, 10.3, EXACT),  # sd is within the margin of plain, exact is not
        (10.0, 20.0, 20.3, SD),  # a gain of 1.5 % is noise
    ],
)
def test_the_fastest_lossless_mode_wins_unless_the_gain_is_noise(
    plain: float, sd: float | None, exact: float | None, lossless: Mode
) -> None:
    assert decide(plain, sd, exact, {}).lossless is lossless


def test_tiered_is_for_the_levels_at_which_it_is_faster_than_every_lossless_mode() -> None:
    verdict = decide(10.0, 20.0, 15.0, {0.01: None, 0.02: 19.0, 0.05: 20.3, 0.1: 26.0})
    assert verdict.levels == {0.01: SD, 0.02: SD, 0.05: SD, 0.1: TIERED}
    assert verdict.pays


def test_what_keeps_a_small_budget_keeps_a_large_one() -> None:
    assert decide(10.0, 20.0, None, {0.01: 30.0, 0.05: None}).levels == {0.01: TIERED, 0.05: TIERED}


def test_a_slim_tier_that_is_never_fastest_does_not_pay() -> None:
    assert not decide(10.0, 20.0, 19.0, {0.01: 18.0, 0.1: 20.0}).pays
    assert decide(10.0, 20.0, 25.0, {0.01: 18.0}).pays  # in a lossless mode, too


def test_a_speed_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the speed of mode sd is 0\.0; it must be above 0"):
        decide(10.0, 0.0, None, {})
