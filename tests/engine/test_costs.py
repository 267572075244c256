"""Costs of passes: what is known of them, how they are measured, kept, and disproved by running answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fakes
import pytest

from via_sd_local.engine import kept_costs, measure
from via_sd_local.engine.costs import Costs, PassCost
from via_sd_local.engine.pace import Pace
from via_sd_local.tiers import cache
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.prompt_lookup import PromptLookup

if TYPE_CHECKING:
    from via_sd_local.runtime.model import Model
    from via_sd_local.tiers.verifier import Verifier

STAIRCASE = {1: 119, 2: 124, 3: 143, 4: 107, 5: 144, 8: 195, 16: 268, 32: 521}  # milliseconds


def test_a_cost_is_the_median_of_what_was_seen() -> None:
    table = Costs()
    for seconds in (1.0, 1.2, 30.0, 1.1, 0.9):  # a core that stalled once
        table.observe("full", 4, seconds)
    assert table.of("full", 4) == 1.1


def test_old_passes_are_forgotten() -> None:
    table = Costs({"full": {4: 9.0}})
    for _ in range(9):
        table.observe("full", 4, 1.0)
    assert table.of("full", 4) == 1.0


@pytest.mark.parametrize(("tokens", "seconds"), [(4, 0.107), (6, 0.161), (64, 1.027), (1, 0.119), (24, 0.3945)])
def test_sizes_that_were_not_seen_are_interpolated(tokens: int, seconds: float) -> None:
    assert Costs({"full": STAIRCASE}).of("full", tokens) == pytest.approx(1000 * seconds)


def test_below_the_smallest_size_its_cost_counts() -> None:
    assert Costs({"full": {4: 2.0}}).of("full", 1) == 2.0


def test_an_unknown_kind_has_no_cost() -> None:
    assert not Costs({"full": STAIRCASE}).knows("slim")
    with pytest.raises(KeyError, match="slim"):
        Costs({"full": STAIRCASE}).of("slim", 1)


def test_costs_survive_json() -> None:
    table = Costs({"full": STAIRCASE, "draft": {1: 12}})
    again = Costs.from_json(json.loads(json.dumps(table.to_json())))
    assert again.to_json() == table.to_json()
    with pytest.raises(ValueError, match=r"costs\.full\.1 is '0\.1', not a number"):
        Costs.from_json({"full": {"1": "0.1"}})


def test_a_single_size_is_not_scaled_but_tried_with_drafts_that_grow_step_by_step() -> None:
    """One pass was timed, on a busy machine: that must not keep drafts off, nor promise long ones."""
    table = Costs({"full": {1: 0.356}, "draft": {1: 0.03, 2: 0.03}})
    assert table.of("full", 4) == 0.356
    pace = Pace(table)
    assert pace.next_length(100) == 3
    table.observe("full", 4, 0.37)
    for _ in range(30):
        pace.observe("full", [], 3, 3)
    assert pace.next_length(100) == 7
    table.observe("full", 4, 3.0)
    table.observe("full", 4, 3.0)
    assert pace.next_length(100) <= 1
    assert pace.refusal is None or pace.refusal.cost > 1


def test_costs_that_a_busy_machine_had_are_forgotten_once_passes_disprove_them() -> None:
    table = Costs({"full": {1: 0.356, 4: 1.42}, "draft": {1: 0.03, 2: 0.03}})
    for _ in range(4):
        table.observe("full", 1, 0.12)
    assert not table.were_disproved
    table.observe("full", 1, 0.12)
    assert table.were_disproved
    assert not table.knows("draft")
    assert table.to_json() == {"full": {"1": 0.12}}
    assert Pace(table).next_length(100) == 3, "it starts again with a short draft, and learns what that costs"


@pytest.mark.parametrize("seconds", [0.1, 0.07, 0.14, 0.5])
def test_costs_stay_if_passes_are_as_fast_or_slower(seconds: float) -> None:
    table = Costs({"full": {1: 0.1, 4: 0.11}, "draft": {1: 0.03}})
    for _ in range(20):
        table.observe("full", 1, seconds)
    assert not table.were_disproved
    assert (table.of("full", 1), table.of("full", 4)) == (seconds, 0.11)


def test_frozen_costs_learn_and_forget_nothing() -> None:
    table = Costs({"full": {1: 0.1}})
    table.frozen = True
    for _ in range(20):
        table.observe("full", 1, 9.0)
    assert table.of("full", 1) == 0.1


#
# measuring, by a clock that moves by one second a token
#


class Timed:
    """A verifier without a slim tier, whose clock `stall` can move on in the middle of some pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = fakes.Clock()
        monkeypatch.setattr(fakes.FakeContext, "clock", self.clock)
        monkeypatch.setattr(cache, "time", self.clock)
        monkeypatch.setattr(measure, "time", self.clock)
        self.verifier: Any = fakes.fake_verifier(fakes.RandomLanguage(0), mask=None)

    def stall(self, at: int, seconds: float) -> None:
        """Let the pass number `at` take so much longer."""
        numbers = iter(range(10**6))

        def fail() -> None:
            self.clock.now += seconds if next(numbers) == at else 0

        self.verifier.context.fail = fail


@pytest.mark.parametrize("at", range(8))
def test_a_stall_in_one_pass_does_not_show_in_its_costs(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch)
    timed.stall(at, 50.0)
    table = measure.measure(timed.verifier, [], seconds=10**4)
    assert {size: table.of("full", size) for size in (1, 4, 2, 8, 32)} == {1: 1, 4: 4, 2: 2, 8: 8, 32: 32}
    stalled = [cost for cost in table.observed()["full"].values() if cost.spread > 0.3]
    assert [cost.samples for cost in stalled] == ([9] if at else []), "what differs is timed again; 0 is the warm-up"


def test_a_size_for_which_there_is_time_once_only_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 as warm-up; 1, 4, 1, 4, 1, 4 by turns: 16 seconds; then 2 and 8, of which a single pass would have to do."""
    table = measure.measure(Timed(monkeypatch).verifier, [], seconds=20.0)
    assert table.to_json() == {"full": {"1": 1.0, "4": 4.0}}
    assert table.samples("full", 4) == PassCost(4.0, 3, 0.0)


#
# measuring real models, and keeping the costs
#


@pytest.fixture
def pair(
    tiny_model: Callable[..., Model], verifier: Callable[..., Verifier], keep: Callable[[Any], Any]
) -> Callable[..., tuple[Verifier, ModelDrafter]]:
    import tiny

    model = tiny_model(tiny.spec("llama"))
    return lambda mask="": (verifier(model, mask), keep(ModelDrafter(model, model, n_ctx=256, n_threads=1)))


def test_measuring_covers_every_kind_and_leaves_the_verifier_empty(
    pair: Callable[..., tuple[Verifier, ModelDrafter]],
) -> None:
    tiers, drafter = pair("2-3")
    table = measure.measure(tiers, [drafter])
    assert tiers.n_kv == tiers.n_full == 0
    assert set(table.to_json()["full"]) >= {"1", "2", "4", "8", "16"}
    assert set(table.to_json()["slim"]) == set(table.to_json()["resume"]) == set(table.to_json()["full"])
    assert set(table.to_json()["draft"]) == {"1", "2"}
    assert all(seconds > 0 for row in table.to_json().values() for seconds in row.values())


def test_measuring_without_time_knows_a_single_token(pair: Callable[..., tuple[Verifier, ModelDrafter]]) -> None:
    tiers, drafter = pair()
    assert set(measure.measure(tiers, [drafter], seconds=0).to_json()["full"]) == {"1"}


def timed(seconds: float) -> Callable[..., Costs]:
    """A stub of `measure`."""

    def stub(*_: object) -> Costs:
        table = Costs()
        table.observe("full", 1, seconds)
        return table

    return stub


def test_measured_costs_are_kept_by_pair_mask_and_file(
    pair: Callable[..., tuple[Verifier, ModelDrafter]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kept_costs, "_folder", lambda: tmp_path / "costs")
    monkeypatch.setattr(kept_costs, "_load", lambda: 0.25)
    tiers, drafter = pair("2-3")
    first = kept_costs.costs_of(tiers, [drafter])
    (file,) = (tmp_path / "costs").iterdir()
    data = json.loads(file.read_text())
    assert (data["load"], data["measured"][:2]) == (0.25, "20")
    assert data["passes"]["full"]["4"]["samples"] >= 3
    assert set(data["passes"]["full"]["4"]) == {"seconds", "samples", "spread"}
    monkeypatch.setattr(measure, "measure", timed(42.0))
    assert kept_costs.costs_of(tiers, [drafter]).to_json() == first.to_json()
    assert kept_costs.costs_of(tiers, [PromptLookup()]).of("full", 1) == 42.0
    assert kept_costs.costs_of(pair("2")[0], [drafter]).of("full", 1) == 42.0
    for broken in ("{ broken", "{}", '{"measured": "", "load": null, "passes": {"full": {}}}'):
        file.write_text(broken)
        assert kept_costs.costs_of(tiers, [drafter]).of("full", 1) == 42.0


def test_kept_costs_are_measured_again_on_request_and_when_the_machine_was_busy_and_is_idler_now(
    pair: Callable[..., tuple[Verifier, ModelDrafter]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kept_costs, "_folder", lambda: tmp_path / "costs")
    tiers, drafter = pair()

    def costs(load: float | None, seconds: float, **options: bool) -> float:
        monkeypatch.setattr(kept_costs, "_load", lambda: load)
        monkeypatch.setattr(measure, "measure", timed(seconds))
        return kept_costs.costs_of(tiers, [drafter], **options).of("full", 1)

    assert costs(2.0, 9.0) == 9.0
    assert costs(1.5, 1.0) == 9.0
    assert costs(0.5, 1.0) == 1.0
    assert costs(0.1, 2.0) == 1.0
    assert costs(None, 2.0) == 1.0
    assert costs(0.5, 3.0, remeasure=True) == 3.0
    kept_costs.forget(tiers, [drafter])
    assert costs(0.5, 4.0) == 4.0


def test_a_cache_that_cannot_be_written_costs_only_time(
    pair: Callable[..., tuple[Verifier, ModelDrafter]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(kept_costs, "_folder", lambda: tmp_path / "file" / "costs")
    tiers, drafter = pair()
    assert kept_costs.costs_of(tiers, [drafter]).knows("full")
