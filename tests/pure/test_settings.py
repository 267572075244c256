"""Contradictions are refused before anything is loaded, and `auto` means what the user has given."""

from __future__ import annotations

from typing import Any

import pytest

from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.session.settings import Settings

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
        (LOOKUP | MASK | {"mode": "tiered", "thresholds": "0.5,0.5"}, Mode.TIERED, "lookup"),
    ],
)
def test_auto_follows_from_what_is_given(options: dict[str, Any], mode: Mode, drafter: str) -> None:
    settings = Settings("large.gguf", **options)
    assert settings.resolved_mode is mode
    assert settings.resolved_drafter == drafter


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"mode": "fast"}, r"mode is 'fast'; it is one of auto, plain, sd, exact, tiered"),
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
        (DRAFT | {"mode": "sd", "max_deviation": 0.1}, r"max_deviation is for the modes auto and tiered; mode 'sd'"),
        (DRAFT | {"max_deviation": 2.0}, r"max_deviation is 2.0; it is a share, from 0 to 1"),
        (DRAFT | NO_PROFILE | {"max_deviation": 0.1}, r"max_deviation in mode 'auto' needs a routing profile"),
        (MASK, r"mask is for the modes exact and tiered; this is mode 'plain'"),
        (DRAFT | MASK, r"mask is for the modes exact and tiered; this is mode 'sd'"),
        (LOOKUP | {"thresholds": "0.5,0.5"}, r"thresholds is for the modes exact and tiered; this is mode 'sd'"),
        ({"mode": "plain", "thresholds": "0.5,0.5"}, r"thresholds is for the modes exact and tiered"),
        (DRAFT | {"mode": "plain"}, r"mode 'plain' does not draft"),
        (LOOKUP | {"mode": "plain"}, r"mode 'plain' does not draft"),
        ({"mode": "sd"}, r"mode 'sd' needs a drafter"),
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
