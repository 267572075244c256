"""What `auto` and the other modes mean with a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import profiles_made
import pytest

from via_sd_local.engine.gate import DEFAULT_RULE, PAPER_RULE, ConfidenceRule, JointRule, PaperRule
from via_sd_local.engine.policy import Mode
from via_sd_local.errors import ModelError
from via_sd_local.mask import LayerMask
from via_sd_local.profiles.profile import Agreement, Profile
from via_sd_local.session.request import AUTO
from via_sd_local.session.routing import Route, route
from via_sd_local.session.settings import Settings

PROFILE = profiles_made.make()
EXACT = profiles_made.make(lossless="exact")
PLAIN = profiles_made.make(lossless="plain")
N_LAYER = PROFILE.verifier.n_layer
NO_SLIM = profiles_made.make(mask="none", levels=())


def chosen(profile: Profile | None = PROFILE, *, pair: bool = True, here: bool = True, **options: Any) -> Route:
    settings = Settings("large.gguf", **({"draft": "small.gguf"} | options))
    draft = Path(settings.draft) if settings.draft else None
    request = settings.parse(Path(settings.verifier), draft, N_LAYER, AUTO if settings.profile else None)
    return route(request, profile, pair=pair, here=here)


def mask(text: str) -> LayerMask:
    return LayerMask.parse(text, N_LAYER)


@pytest.mark.parametrize(
    ("profile", "budget", "mode"),
    [
        (None, None, Mode.SD),
        (PROFILE, None, Mode.SD),
        (PROFILE, 0.0, Mode.SD),
        (PROFILE, 0.01, Mode.SD),
        (PROFILE, 0.02, Mode.SD),  # there are thresholds, but they do not pay
        (PROFILE, 0.049, Mode.SD),
        (PROFILE, 0.05, Mode.TIERED),
        (PROFILE, 0.5, Mode.TIERED),
        (EXACT, None, Mode.EXACT),
        (EXACT, 0.02, Mode.EXACT),
        (EXACT, 0.05, Mode.TIERED),
        (PLAIN, None, Mode.PLAIN),
        (NO_SLIM, 0.05, Mode.SD),
    ],
)
def test_auto_is_the_fastest_mode_within_the_budget(profile: Profile | None, budget: float | None, mode: Mode) -> None:
    choice = chosen(profile, max_deviation=budget)
    assert choice.mode is mode
    assert (choice.mask == mask("2-3")) == (mode in (Mode.EXACT, Mode.TIERED))
    assert choice.max_deviation == (budget if mode is Mode.TIERED else None)
    assert (choice.warning is None) == (mode is not Mode.PLAIN)


def test_a_draft_that_is_not_used_is_said() -> None:
    warning = chosen(PLAIN).warning
    assert warning is not None
    assert "nothing drafts; mode 'sd' drafts all the same" in warning


def test_a_slim_tier_that_never_agrees_is_said() -> None:
    poor = profiles_made.make(agreement={"q'-q": Agreement(0.02, 1400)})
    for options in ({"mode": "tiered"}, {"mode": "tiered", "thresholds": "joint:1,1"}, {"mode": "exact"}):
        assert "agrees with the full model on 2 % of tokens only" in (chosen(poor, **options).warning or "")
    assert chosen(poor, mode="exact", mask="4").warning is None


def test_auto_takes_the_thresholds_of_the_budget() -> None:
    assert chosen(max_deviation=0.06).rule == JointRule(0.6, 0.7)
    assert chosen(max_deviation=0.1).rule == ConfidenceRule(0.5, 0.3)


def test_exact_is_trusted_only_on_the_machine_it_was_measured_on() -> None:
    assert chosen(EXACT, here=False).mode is Mode.SD
    assert chosen(max_deviation=0.05, here=False).mode is Mode.TIERED


def test_with_another_draft_auto_is_what_it_is_without_a_profile() -> None:
    choice = chosen(EXACT, pair=False)
    assert (choice.mode, choice.warning) == (Mode.SD, None)
    assert chosen(PLAIN, pair=False).mode is Mode.SD


@pytest.mark.parametrize(
    ("options", "doubt"),
    [
        ({"profile": None}, "as there is no profile of the pair; run via-sd-local calibrate"),
        ({"pair": False}, "as its profile was made with another drafter; run via-sd-local calibrate"),
        ({"draft": None}, "as nothing drafts; give a draft model (draft)"),
    ],
)
def test_a_budget_that_cannot_be_used_is_told(options: dict[str, Any], doubt: str) -> None:
    choice = chosen(max_deviation=0.05, **options)
    assert choice.mode in (Mode.SD, Mode.PLAIN)
    assert choice.warning == f"max_deviation 0.05 is not made use of, {doubt}"


def test_tiered_takes_mask_and_thresholds_from_the_profile() -> None:
    assert chosen(mode="tiered") == Route(
        Mode.TIERED, mask("2-3"), JointRule(0.9, 0.9), None, "the profile's thresholds for max_deviation 0.02"
    )
    asked = chosen(mode="tiered", max_deviation=0.2)
    assert (asked.rule, asked.max_deviation) == (ConfidenceRule(0.5, 0.3), 0.2)


def test_what_is_given_by_hand_wins() -> None:
    thresholds = chosen(mode="tiered", thresholds="ratio:0.7,0.3")
    assert (thresholds.mask, thresholds.rule.name) == (mask("2-3"), "ratio")
    other = chosen(mode="tiered", mask="4", max_deviation=0.1)
    assert (other.mask, other.rule) == (mask("4"), DEFAULT_RULE)  # the profile's thresholds are for its own mask
    same = chosen(mode="tiered", mask="3,2", max_deviation=0.1)
    assert same.rule == ConfidenceRule(0.5, 0.3)
    assert chosen(None, mode="tiered", mask="4").mask == mask("4")


def test_with_another_draft_the_mask_still_holds_but_not_the_thresholds() -> None:
    choice = chosen(mode="tiered", pair=False)
    assert (choice.mask, choice.rule) == (mask("2-3"), DEFAULT_RULE)
    assert choice.warning == "the profile's thresholds are for another draft model; using joint:0.5,0.5"
    exact = chosen(mode="exact", pair=False)
    assert (exact.mask, exact.rule, exact.warning) == (
        mask("2-3"),
        DEFAULT_RULE,
        None,
    )  # lossless whatever the thresholds


def test_a_budget_below_all_evidence_is_told() -> None:
    choice = chosen(mode="tiered", max_deviation=0.01)
    assert choice.rule == DEFAULT_RULE
    assert choice.warning == "the profile knows no thresholds for max_deviation 0.01; using joint:0.5,0.5"
    assert choice.max_deviation == 0.01  # audits still make them stricter


def test_exact_takes_what_serves_it_best() -> None:
    speeds = profiles_made.Speeds(10.0, 30.0, 25.0, "joint:0.3,0.4")
    assert chosen(profiles_made.make(speeds=speeds), mode="exact").rule == JointRule(0.3, 0.4)


@pytest.mark.parametrize(
    ("profile", "reason"),
    [(None, "there is no profile of this verifier"), (NO_SLIM, "its profile found no slim tier")],
)
@pytest.mark.parametrize("mode", ["exact", "tiered"])
def test_without_any_mask_calibration_is_the_remedy(profile: Profile | None, reason: str, mode: str) -> None:
    with pytest.raises(ModelError, match=f"mode '{mode}' needs a mask, and {reason}.*via-sd-local calibrate"):
        chosen(profile, mode=mode)
    assert chosen(profile, mode="sd").mode is Mode.SD


def test_viasd_takes_the_mask_of_the_profile_and_the_rule_of_the_paper() -> None:
    choice = chosen(mode="viasd")
    assert (choice.mode, choice.mask, choice.rule) == (Mode.VIASD, mask("2-3"), PAPER_RULE)
    assert choice.max_deviation is None
    assert chosen(mode="viasd", thresholds="paper:0.2,0.6", mask="1").rule == PaperRule(0.2, 0.6)
    with pytest.raises(ModelError, match="mode 'viasd' needs a mask, and its profile found no slim tier"):
        chosen(NO_SLIM, mode="viasd")


def test_lenient_needs_no_profile_and_keeps_its_budget() -> None:
    choice = chosen(None, mode="lenient", max_deviation=0.1)
    assert (choice.mode, choice.mask, choice.max_deviation) == (Mode.LENIENT, None, 0.1)
