"""The settings that `/mode` and `/draft` ask for."""

from __future__ import annotations

from typing import Any

import pytest

from via_sd_local.chat.switches import Switches
from via_sd_local.session.settings import Settings


def after(*requests: tuple[str, ...], **start: Any) -> Settings:
    """The settings after these requests, each `("mode", …)` or `("draft", …)`, from those of the start."""
    switches = Switches(Settings("big", **start))
    for kind, *arguments in requests:
        switches.use(switches.with_mode(*arguments) if kind == "mode" else switches.with_drafter(*arguments))
    return switches.settings


TIERED = {"draft": "small", "mode": "tiered", "mask": "3", "thresholds": "joint:0.6,0.6", "max_deviation": 0.02}


@pytest.mark.parametrize("way", [["plain"], ["sd"], ["exact"], ["plain", "exact", "sd"], ["auto", "plain"]])
def test_the_way_back_to_a_mode_finds_what_it_had(way: list[str]) -> None:
    settings = after(*(("mode", mode) for mode in way), ("mode", "tiered"), **TIERED)
    assert settings == Settings("big", **TIERED)


def test_a_mode_takes_only_what_it_has_a_use_for() -> None:
    assert after(("mode", "plain"), **TIERED) == Settings("big", mode="plain", drafter="none")
    assert after(("mode", "sd"), **TIERED) == Settings("big", draft="small", mode="sd")
    exact = Settings("big", draft="small", mode="exact", mask="4", thresholds="joint:0.6,0.6")
    assert after(("mode", "exact", "4"), **TIERED) == exact
    assert after(("mode", "auto"), **TIERED) == Settings("big", draft="small", mode="auto", max_deviation=0.02)
    assert after(("mode", "auto")) == Settings("big", mode="plain", drafter="none")


def test_lenient_takes_a_budget_and_no_mask() -> None:
    lenient = Settings("big", draft="small", mode="lenient", max_deviation=0.1)
    assert after(("mode", "lenient", "0.1"), draft="small", mode="sd") == lenient
    assert after(("mode", "lenient"), **TIERED) == Settings("big", draft="small", mode="lenient", max_deviation=0.02)
    assert after(("mode", "lenient", "0.1"), ("mode", "tiered"), **TIERED).max_deviation == 0.1
    with pytest.raises(ValueError, match=r"needs a budget of deviations; e\.g\. /mode lenient 0.05"):
        after(("mode", "lenient"), draft="small")
    with pytest.raises(ValueError, match="the budget is '12-17'; it must be a share"):
        after(("mode", "lenient", "12-17"), draft="small")


def test_viasd_takes_the_mask_and_thresholds_of_the_paper_only() -> None:
    common = {"draft": "small", "mask": "3", "max_deviation": 0.02}
    assert after(("mode", "viasd"), **TIERED) == Settings("big", mode="viasd", **common)
    paper = TIERED | {"thresholds": "paper:0.3,0.5", "router": "slim-first", "audit_every": 8}
    viasd = Settings("big", mode="viasd", thresholds="paper:0.3,0.5", audit_every=8, **common)
    assert after(("mode", "viasd"), **paper) == viasd
    assert after(("mode", "viasd"), ("mode", "sd"), ("mode", "tiered"), **paper) == Settings("big", **paper)


def test_another_model_keeps_the_budget_of_lenient() -> None:
    switches = Switches(Settings("big", draft="small", mode="lenient", max_deviation=0.1))
    assert switches.with_model("other").max_deviation == 0.1


def test_without_profiles_auto_is_the_usual_mode() -> None:
    start = TIERED | {"profile": None}
    assert after(("mode", "auto"), **start) == Settings("big", draft="small", mode="sd", profile=None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("other", {"drafter": "model", "draft": "other"}),
        ("a file.gguf", {"drafter": "model", "draft": "a file.gguf"}),
        ("lookup", {"drafter": "lookup"}),
        ("lookup+other", {"drafter": "lookup+model", "draft": "other"}),
        ("self 8-25", {"drafter": "self", "draft_mask": "8-25"}),
        ("lookup+self 8-25", {"drafter": "lookup+self", "draft_mask": "8-25"}),
    ],
)
def test_a_drafter_replaces_the_one_before_in_the_same_mode(text: str, expected: dict[str, str]) -> None:
    slim = {name: value for name, value in TIERED.items() if name != "draft"}
    assert after(("draft", text), **TIERED) == Settings("big", **(slim | expected))
    assert after(("draft", text)) == Settings("big", mode="sd", **expected)  # from mode plain
    back = after(("draft", text), ("mode", "plain"), ("mode", "sd"))
    assert back == Settings("big", mode="sd", **expected)
    assert after(("draft", text), ("draft", "none"), **TIERED) == Settings("big", mode="plain", drafter="none")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (("mode", "fast"), "one of auto, plain, sd, exact, lenient, tiered, viasd"),
        (("mode", "sd"), "choose one with /draft"),
        (("draft", "self"), "e.g. /draft self 8-25"),
    ],
)
def test_what_lacks_something_is_refused_with_what_to_type(request_: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        after(request_)


def test_layers_are_needed_by_the_slim_tier_and_by_it_alone() -> None:
    with pytest.raises(ValueError, match=r"e\.g\. /mode exact 12-17"):
        after(("mode", "exact"), draft="small", profile=None)
    assert after(("mode", "exact"), draft="small").mask is None  # the profile's
    with pytest.raises(ValueError, match="this is mode 'sd': leave it out"):
        after(("mode", "sd", "3"), draft="small")


def test_another_model_gets_none_of_the_layers_of_this_one() -> None:
    def with_model(**start: Any) -> Settings:
        return Switches(Settings("big", **start)).with_model("other")

    assert with_model(**TIERED) == Settings("other", draft="small", drafter="model")
    assert with_model(mode="sd", drafter="lookup", draft_tokens=4) == Settings(
        "other", mode="sd", drafter="lookup", draft_tokens=4
    )
    assert with_model(mode="sd", drafter="self", draft_mask="2-3") == Settings("other", drafter="none")
    assert with_model(mode="exact", mask="1", drafter="lookup+self", draft_mask="2", profile=None) == Settings(
        "other", drafter="lookup", profile=None
    )
    lenient = {"draft": "small", "mode": "lenient", "max_deviation": 0.05}
    assert with_model(**lenient) == Settings("other", drafter="model", **lenient)
    assert with_model(n_ctx=99, threads=2) == Settings("other", drafter="none", n_ctx=99, threads=2)
