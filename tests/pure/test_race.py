"""Between two ways, the one that yields more is found soon, kept, and doubted less and less."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from via_sd_local.engine import race
from via_sd_local.engine.race import Race


def run(one: Race, blocks: int, seconds: dict[str, float], noise: float = 0.0, seed: int = 0) -> list[str]:
    """What it chooses, where a block of each way emits 3 tokens in so many seconds."""
    rng = np.random.default_rng(seed)
    chosen = []
    for _ in range(blocks):
        chosen.append(one.next_choice())
        one.observe(chosen[-1], 3, seconds[chosen[-1]] * rng.uniform(1 - noise, 1 + noise))
    return chosen


@pytest.mark.parametrize("better", ["full", "slim"])
def test_the_better_way_is_taken_and_the_other_tried_ever_more_rarely(better: str) -> None:
    seconds = {"full": 1.0, "slim": 1.0} | {better: 0.8}
    chosen = run(Race(("full", "slim")), 300, seconds)
    assert Counter(chosen[: 2 * race._FIRST]) == {"full": race._FIRST, "slim": race._FIRST}
    tries = [i for i, way in enumerate(chosen) if way != better and i >= 2 * race._FIRST]
    gaps = np.diff([2 * race._FIRST - 1, *tries])
    assert gaps.tolist()[:3] == [race._SOONEST, 2 * race._SOONEST, 4 * race._SOONEST]
    assert set(gaps[3:]) == {race._RAREST}


def test_a_first_impression_that_was_wrong_is_corrected() -> None:
    one = Race(("full", "slim"))
    for _ in range(race._FIRST):
        one.observe("full", 3, 1.0)
        one.observe("slim", 3, 1.3)  # by bad luck
    chosen = run(one, 200, {"full": 1.0, "slim": 0.7})
    assert Counter(chosen[100:])["slim"] > 90


def test_what_changes_is_noticed() -> None:
    one = Race(("full", "slim"))
    run(one, 100, {"full": 1.0, "slim": 0.5}, 0.3)
    chosen = run(one, 300, {"full": 1.0, "slim": 2.0}, 0.3)
    assert Counter(chosen[150:])["full"] > 140


def test_of_one_way_there_is_no_choice() -> None:
    assert set(run(Race(("full",)), 60, {"full": 1.0})) == {"full"}


def test_a_try_that_went_well_is_repeated_soon() -> None:
    """What was slow for long and has become fast is taken up before its old record has faded."""
    one = Race(("full", "slim"))
    run(one, 300, {"full": 1.0, "slim": 2.0})
    chosen = run(one, 120, {"full": 1.0, "slim": 0.5})
    assert Counter(chosen[80:])["slim"] > 30
