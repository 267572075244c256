"""Contradictions are refused before anything is loaded, and `auto` means what the user has given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from via_sd_local.engine.gate import JointRule, PaperRule
from via_sd_local.engine.policy import AUDIT_EVERY, NEVER, Mode, Policy, Router
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.placement import Placement
from via_sd_local.session.request import AUTO, LookupSpec, ModelSpec, ParsedSettings, SelfSpec
from via_sd_local.session.settings import MissingSetting, Settings

DRAFT = {"draft": "small.gguf"}
LOOKUP = {"drafter": "lookup"}
MASK = {"mask": "12-17"}
NO_PROFILE = {"profile": None}
SELF = {"drafter": "self", "draft_mask": "8-25"}


@pytest.mark.parametrize(
    ("options", "mode", "drafter"),
    [
        ({}, Mode.PLAIN, "none"),
        ({"drafter": "none"}, Mode.PLAIN, "none"),
        ({"mode": "plain"}, Mode.PLAIN, "none"),
        (DRAFT, Mode.SD, "model"),
        (DRAFT | {"drafter": "model"}, Mode.SD, "model"),
        (LOOKUP, Mode.SD, "lookup"),
        (LOOKUP | {"mode": "sd"}, Mode.SD, "lookup"),
        (SELF, Mode.SD, "self"),
        (DRAFT | {"drafter": "lookup+model"}, Mode.SD, "lookup+model"),
        (SELF | MASK | {"mode": "exact", "drafter": "lookup+self"}, Mode.EXACT, "lookup+self"),
        (DRAFT | MASK | NO_PROFILE | {"mode": "exact"}, Mode.EXACT, "model"),
        (DRAFT | {"max_deviation": 0.05}, Mode.SD, "model"),
        (DRAFT | {"mode": "tiered", "max_deviation": 0.05}, Mode.TIERED, "model"),
        (DRAFT | NO_PROFILE | {"mode": "lenient", "max_deviation": 0.05}, Mode.LENIENT, "model"),
        (LOOKUP | MASK | {"mode": "tiered", "thresholds": "0.5,0.5"}, Mode.TIERED, "lookup"),
    ],
)
def test_auto_follows_from_what_is_given(options: dict[str, Any], mode: Mode, drafter: str) -> None:
    settings = Settings("large.gguf", **options)
    assert settings.mode_without_profile is mode
    assert ("+".join(kind.value for kind in settings.drafter_kinds) or "none") == drafter


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"mode": "fast"}, r"mode is 'fast'; it is one of auto, plain, sd, exact, lenient, tiered, viasd"),
        (
            {"drafter": "small"},
            r"drafter is 'small'; it is one of auto, model, lookup, self, lookup\+model, lookup\+self, none",
        ),
        ({"drafter": "model"}, r"'model' needs a draft model \(draft\)"),
        (DRAFT | LOOKUP, r"drafter 'lookup' does not use the draft model 'small.gguf'"),
        ({"drafter": "lookup+model"}, r"'lookup\+model' needs a draft model \(draft\)"),
        (DRAFT | SELF, r"drafter 'self' does not use the draft model 'small.gguf'"),
        (
            DRAFT | SELF | {"drafter": "lookup+self"},
            r"drafter 'lookup\+self' does not use the draft model 'small.gguf'",
        ),
        ({"drafter": "self"}, r"drafter 'self' needs a mask to draft under \(draft_mask\)"),
        ({"drafter": "lookup+self"}, r"drafter 'lookup\+self' needs a mask to draft under"),
        (LOOKUP | {"draft_mask": "8-25"}, r"draft_mask is for the drafter self; this is drafter 'lookup'"),
        ({"draft_mask": "8-25"}, r"draft_mask is for the drafter self; this is drafter 'none'"),
        (SELF | {"mode": "plain"}, r"mode 'plain' does not draft"),
        (DRAFT | {"drafter": "none"}, r"drafter 'none' does not use the draft model 'small.gguf'"),
        (LOOKUP | NO_PROFILE | {"mode": "exact"}, r"mode 'exact' needs a mask \(mask\).* calibrate makes"),
        (DRAFT | NO_PROFILE | {"mode": "tiered"}, r"mode 'tiered' needs a mask \(mask\).* calibrate makes"),
        (
            DRAFT | {"mode": "sd", "max_deviation": 0.1},
            r"for the modes auto, lenient, tiered and viasd; mode 'sd'",
        ),
        (DRAFT | {"max_deviation": 2.0}, r"max_deviation is 2.0; it must be a share from 0 to 1"),
        (DRAFT | NO_PROFILE | {"max_deviation": 0.1}, r"max_deviation in mode 'auto' needs a routing profile"),
        (MASK, r"mask is for the modes exact, tiered and viasd; this is mode 'plain'"),
        (DRAFT | MASK, r"mask is for the modes exact, tiered and viasd; this is mode 'sd'"),
        (LOOKUP | {"thresholds": "0.5,0.5"}, r"thresholds is for the modes exact, tiered and viasd; this is mode 'sd'"),
        (
            LOOKUP | MASK | {"mode": "tiered", "thresholds": "x"},
            r"thresholds 'x' are not of the form RULE:",
        ),
        (LOOKUP | {"draft_tokens": 0}, r"draft_tokens is 0; it must be at least 1"),
        ({"mode": "plain", "thresholds": "0.5,0.5"}, r"thresholds is for the modes exact, tiered and viasd"),
        (DRAFT | {"mode": "plain"}, r"mode 'plain' does not draft"),
        (LOOKUP | {"mode": "plain"}, r"mode 'plain' does not draft"),
        ({"mode": "sd"}, r"mode 'sd' needs a drafter"),
        (DRAFT | {"mode": "lenient"}, r"mode 'lenient' needs a budget of deviations \(max_deviation\), e.g. 0.05"),
        (DRAFT | MASK | {"mode": "lenient", "max_deviation": 0.1}, r"mask is for the modes exact, tiered and viasd"),
        ({"mode": "lenient", "max_deviation": 0.1}, r"mode 'lenient' needs a drafter"),
        (DRAFT | NO_PROFILE | {"mode": "viasd"}, r"mode 'viasd' needs a mask \(mask\).* or a routing profile"),
        (
            DRAFT | MASK | {"mode": "viasd", "thresholds": "0.3,0.5"},
            r"mode 'viasd' has the paper's rule",
        ),
        (DRAFT | MASK | {"mode": "viasd", "thresholds": "paper:0.5,0.3"}, r"alpha1 must be below alpha2"),
        (DRAFT | MASK | {"mode": "viasd", "router": "cost"}, r"in mode 'viasd' the slim tier is always first"),
        (DRAFT | MASK | {"mode": "tiered", "router": "fast"}, r"router is 'fast'; it is one of slim-first, cost, full"),
        (DRAFT | {"mode": "sd", "router": "cost"}, r"router is for the modes tiered and viasd; this is mode 'sd'"),
        (DRAFT | MASK | {"mode": "exact", "write_through": True}, r"write_through is for the modes tiered and viasd"),
        (DRAFT | {"write_through": True}, r"write_through is for the modes tiered and viasd; this is mode 'auto'"),
        (
            DRAFT | MASK | {"mode": "viasd", "write_through": True, "max_deviation": 0.1},
            r"write_through lets .* drift, .* max_deviation is a bound .*; leave out one of the two",
        ),
        (DRAFT | {"mode": "sd", "audit_every": 4}, r"audit_every is for the modes tiered and viasd"),
        (DRAFT | MASK | {"mode": "tiered", "audit_every": 0}, r"audit_every is 0; it must be a number of tokens"),
        (DRAFT | MASK | {"mode": "tiered", "audit_every": "often"}, r"audit_every is 'often'; it must be a number"),
        (
            DRAFT | MASK | {"mode": "tiered", "audit_every": "never", "max_deviation": 0.1},
            r"audit_every is never, and max_deviation needs audits",
        ),
        ({"mode": "sd", "drafter": "none"}, r"mode 'sd' needs a drafter"),
        (MASK | {"mode": "exact"}, r"mode 'exact' needs a drafter"),
        (MASK | {"mode": "tiered", "drafter": "none"}, r"mode 'tiered' needs a drafter"),
    ],
)
def test_a_contradiction_is_refused_by_the_name_of_the_option(options: dict[str, Any], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        Settings("large.gguf", **options)


@pytest.mark.parametrize("name", ["draft_tokens", "audit_every"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_policy_counts_from_one(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}; it must be at least 1"):
        Policy(**{name: value})


def test_a_policy_of_one_is_fine() -> None:
    assert Policy(draft_tokens=1, audit_every=1).mode is Mode.PLAIN


#
# the request
#


def request(profile: Any = AUTO, **options: Any) -> ParsedSettings:
    settings = Settings("large.gguf", **options)
    draft = Path(settings.draft) if settings.draft is not None else None
    return settings.parse(Path(settings.verifier), draft, 30, profile)


def test_a_request_has_values_in_place_of_texts() -> None:
    placement = Placement(n_gpu_layers=3)
    asked = request(
        None,
        **MASK,
        draft="small.gguf",
        drafter="lookup+model",
        mode="tiered",
        thresholds="0.5,0.6",
        router="slim-first",
        audit_every="never",
        write_through=True,
        n_ctx=256,
        threads=2,
        draft_placement=placement,
    )
    model = ModelSpec(Path("small.gguf"), placement, 2)
    assert asked == ParsedSettings(
        verifier=Path("large.gguf"),
        placement=Placement(),
        drafters=(LookupSpec(), model),
        mode=Mode.TIERED,
        profile=None,
        mask=LayerMask.parse("12-17", 30),
        rule=JointRule(0.5, 0.6),
        max_deviation=None,
        draft_tokens=None,
        router=Router.SLIM_FIRST,
        audit_every=NEVER,
        write_through=True,
        n_ctx=256,
        threads=2,
        check_memory=True,
        remeasure=False,
    )
    assert asked.draft_model == model
    assert request(**SELF).drafters == (SelfSpec(LayerMask.parse("8-25", 30)),)
    assert request(**SELF).draft_model is None


def test_auto_stays_open_in_a_request() -> None:
    assert request().mode is AUTO
    assert request().mode_without_profile is Mode.PLAIN
    assert request(**LOOKUP).mode_without_profile is Mode.SD
    assert request(**LOOKUP, mode="sd").mode is Mode.SD


def test_layers_that_the_verifier_lacks_are_named() -> None:
    with pytest.raises(ValueError, match="layer 99; the model's layers are 0 to 29"):
        request(**LOOKUP, mode="tiered", mask="99")


def test_routing_has_defaults_and_viasd_takes_its_own_rule() -> None:
    asked = request(**DRAFT)
    assert (asked.router, asked.audit_every) == (Router.COST, AUDIT_EVERY)
    assert request(**DRAFT, **MASK, mode="viasd", thresholds="paper:0.2,0.6").rule == PaperRule(0.2, 0.6)


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(MissingSetting) as caught:
        Settings("large.gguf", mode="sd")
    assert (caught.value.setting, caught.value.problem) == ("drafter", "mode 'sd' needs a drafter")
