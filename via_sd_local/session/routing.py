"""The route of a request, with or without a routing profile: the mode, the mask, the thresholds.

`route` decides and is pure; `find_route` looks for the profile on this machine first.
"""

from __future__ import annotations

from dataclasses import replace

from ..engine.gate import DEFAULT_RULE, PAPER_RULE
from ..engine.policy import Mode
from ..errors import ModelError
from ..mask import LayerMask
from ..profiles import store
from ..profiles.machine import machine
from ..profiles.profile import Profile
from ..profiles.store import ProfileMatch
from ..runtime.limits import default_threads
from ..runtime.placement import DEFAULT
from .request import AUTO, ParsedSettings, Route

DEFAULT_LEVEL = 0.02  # max_deviation of the thresholds in mode tiered, where no budget is given
MIN_AGREEMENT = 0.5  # of the slim tier with the full model; below it the slim tier only costs time


def find_route(asked: ParsedSettings) -> Route:
    """Choose the route by the profile that the settings name, or by one on this machine that matches their models.

    Raises ModelError for a named profile that was made for another verifier, and for a mode that lacks a mask.
    """
    match = _find_profile(asked)
    if match is None:
        return route(asked, None, pair=False, here=False)
    profile, draft = match.profile, asked.draft_model
    pair = match.pair and draft is not None and len(asked.drafters) == 1
    # costs are measured with both models placed by default
    is_default = asked.placement == DEFAULT and (draft is None or draft.placement == DEFAULT)
    threads = asked.threads or default_threads()
    costs = profile.costs_on(machine(), threads) if is_default else None
    chosen = route(asked, profile, pair=pair, here=costs is not None)
    applies = pair and chosen.mask in (None, profile.layer_mask)
    return replace(chosen, match=match, costs=costs if applies else None)


def _find_profile(asked: ParsedSettings) -> ProfileMatch | None:
    if asked.profile is None:
        return None
    draft = asked.draft_model.path if asked.draft_model is not None else None
    if asked.profile is not AUTO:
        return store.load_for(asked.profile, asked.verifier, draft)
    # do not even read the files where a profile would change nothing
    is_complete = asked.mask is not None and (asked.rule is not None or asked.mode is Mode.VIASD)
    mode = asked.mode_without_profile
    if is_complete or mode is Mode.PLAIN or (asked.mode is not AUTO and not mode.uses_slim_tier):
        return None
    return store.find(asked.verifier, draft)


def route(asked: ParsedSettings, profile: Profile | None, *, pair: bool, here: bool) -> Route:
    """Choose mode, mask and thresholds, given a profile of this verifier, or none.

    `pair`: the profile was made with the drafter in use; its thresholds and speeds hold only then. `here`: its pass
    costs were measured on this machine with this number of threads; `exact`, which sends every draft through the slim
    tier, is trusted to be the fastest mode only then. Raises ModelError for a mode that needs a mask where neither the
    request nor the profile has one.
    """
    if asked.mode is AUTO:
        return _automatic(asked, profile, pair=pair, here=here)
    if not asked.mode.uses_slim_tier:
        return Route(asked.mode, None, DEFAULT_RULE, asked.max_deviation, "as asked")
    mask = asked.mask
    if mask is None:
        if profile is None or not profile.has_mask:
            reason = "there is no profile of this verifier" if profile is None else "its profile found no slim tier"
            raise ModelError(
                f"mode {asked.mode.value!r} needs a mask, and {reason}: give one (mask, e.g. 12-17), or search for "
                "one: via-sd-local calibrate"
            )
        mask = profile.layer_mask
    if asked.mode is Mode.VIASD:
        chosen = Route(asked.mode, mask, asked.rule or PAPER_RULE, asked.max_deviation, "as asked")
    else:
        chosen = _with_slim_tier(asked, asked.mode, mask, profile if pair else None)
    agreement = profile.agreement.get("q'-q") if profile is not None else None
    if asked.mask is None and agreement is not None and agreement.share < MIN_AGREEMENT:
        poor = f"the profile's slim tier agrees with the full model on {100 * agreement.share:.0f} % of tokens only"
        return replace(chosen, warning=f"{poor}: calibrate again, with more time for the search")
    return chosen


def _with_slim_tier(asked: ParsedSettings, mode: Mode, mask: LayerMask, profile: Profile | None) -> Route:
    """Choose the thresholds for `exact` or `tiered`; `profile` is also None if it was made with another drafter."""
    budget = asked.max_deviation
    if asked.rule is not None:
        return Route(mode, mask, asked.rule, budget, "as asked")
    default = Route(mode, mask, DEFAULT_RULE, budget, "default thresholds")
    if profile is None and asked.mask is None and mode is Mode.TIERED:
        warning = f"the profile's thresholds are for another draft model; using {DEFAULT_RULE}"
        return replace(default, warning=warning)
    if profile is None or mask != profile.layer_mask:  # thresholds hold for the mask that they were calibrated with
        return default
    if mode is Mode.EXACT:
        rule = profile.exact_rule
        return default if rule is None else replace(default, rule=rule, why="the profile's thresholds")
    level = DEFAULT_LEVEL if budget is None else budget
    rule = profile.rule(level)
    if rule is None:
        warning = f"the profile knows no thresholds for max_deviation {level:g}; using {DEFAULT_RULE}"
        return replace(default, warning=warning)
    return replace(default, rule=rule, why=f"the profile's thresholds for max_deviation {level:g}")


def _automatic(asked: ParsedSettings, profile: Profile | None, *, pair: bool, here: bool) -> Route:
    """Choose the fastest mode within the budget, according to the profile."""
    mode, budget = asked.mode_without_profile, asked.max_deviation or 0.0
    unused = f"max_deviation {budget:g} is not made use of, as"
    if mode is Mode.PLAIN:
        warning = f"{unused} nothing drafts; give a draft model (draft)" if budget else None
        return Route(mode, None, DEFAULT_RULE, None, "plain: no drafter", warning)
    if profile is None or not pair:
        reason = "there is no profile of the pair" if profile is None else "its profile was made with another drafter"
        warning = f"{unused} {reason}; run via-sd-local calibrate" if budget else None
        return Route(mode, None, DEFAULT_RULE, None, f"{mode.value}: the default", warning)
    level = profile.level(budget)
    if level is not None and level.mode == Mode.TIERED.value:
        rule = profile.rule(budget)
        assert rule is not None, "a level in mode tiered has thresholds"
        why = f"tiered: fastest within {budget:g} by the profile"
        return Route(Mode.TIERED, profile.layer_mask, rule, budget, why)
    lossless = Mode(profile.lossless)
    if lossless is Mode.EXACT and not (here and profile.has_mask):
        lossless = Mode.SD
    warning = None
    if lossless is Mode.PLAIN:
        warning = "by the profile plain decoding is fastest here, so nothing drafts; mode 'sd' drafts all the same"
    mask = profile.layer_mask if lossless is Mode.EXACT else None
    why = f"{lossless.value}: the fastest lossless mode by the profile"
    return Route(lossless, mask, profile.exact_rule or DEFAULT_RULE, None, why, warning)
