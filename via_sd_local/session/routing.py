"""What settings mean with or without a routing profile: the mode, the mask, the thresholds. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..engine.gate import DEFAULT_RULE, Rule, parse_rule
from ..engine.policy import Mode
from ..errors import ModelError
from ..mask import LayerMask
from ..profiles.profile import Profile
from .settings import Settings

DEFAULT_LEVEL = 0.02  # of thresholds in mode tiered, where no budget is given
USELESS = 0.5  # agreement of a slim tier with the full model, below which it only costs time


@dataclass(frozen=True, slots=True)
class Choice:
    """How to run; `why` is for the user, and `doubt` what a warning should say, if anything."""

    mode: Mode
    mask: str | None
    rule: Rule
    max_deviation: float | None
    why: str
    doubt: str | None = None


def choose(settings: Settings, profile: Profile | None, *, pair: bool, here: bool) -> Choice:
    """What to do with a profile of this verifier, or with none.

    `pair`: the profile was made with the draft in use; thresholds and speeds hold only then. `here`: on this machine
    with so many threads; `exact`, whose every draft goes through the slim tier, is trusted to be fastest only then.
    Raises ModelError where a mode needs a mask and there is none.
    """
    if settings.mode == "auto":
        return _automatic(settings, profile if pair else None, profile is not None, here)
    mode = Mode(settings.mode)
    if mode not in (Mode.EXACT, Mode.TIERED):
        return Choice(mode, None, DEFAULT_RULE, None, "as asked")
    mask = settings.mask
    if mask is None:
        if profile is None or not profile.has_mask:
            reason = "there is no profile of this verifier" if profile is None else "its profile found no slim tier"
            raise ModelError(
                f"mode {mode.value!r} needs a mask, and {reason}: give one (mask, e.g. 12-17), or search for one: "
                "via-sd-local calibrate"
            )
        mask = profile.mask
    choice = _with_mask(settings, mode, mask, profile, pair)
    share = profile.agreement["q'-q"].share if profile is not None and "q'-q" in profile.agreement else 1.0
    if settings.mask is None and share < USELESS:
        useless = f"the profile's slim tier agrees with the full model on {100 * share:.0f} % of tokens only"
        return replace(choice, doubt=f"{useless}: calibrate again, with more time for the search")
    return choice


def _with_mask(settings: Settings, mode: Mode, mask: str, profile: Profile | None, pair: bool) -> Choice:
    """The thresholds for a mode that uses the slim tier."""
    budget = settings.max_deviation
    if settings.thresholds is not None:
        return Choice(mode, mask, parse_rule(settings.thresholds), budget, "as asked")
    if mode is Mode.EXACT and profile is not None and pair and _same_mask(mask, profile) and profile.speeds.exact_rule:
        return Choice(mode, mask, parse_rule(profile.speeds.exact_rule), None, "the profile's thresholds")
    if mode is Mode.EXACT or profile is None or not pair or not _same_mask(mask, profile):
        doubt = None
        if mode is Mode.TIERED and profile is not None and settings.mask is None:
            doubt = f"the profile's thresholds are for another draft model; using {_text(DEFAULT_RULE)}"
        return Choice(mode, mask, DEFAULT_RULE, budget, "default thresholds", doubt)
    level = DEFAULT_LEVEL if budget is None else budget
    rule = profile.rule(level)
    if rule is None:
        doubt = f"the profile knows no thresholds for max_deviation {level:g}; using {_text(DEFAULT_RULE)}"
        return Choice(mode, mask, DEFAULT_RULE, budget, "default thresholds", doubt)
    return Choice(mode, mask, rule, budget, f"the profile's thresholds for max_deviation {level:g}")


def _automatic(settings: Settings, profile: Profile | None, other_draft: bool, here: bool) -> Choice:
    """The fastest mode that keeps the budget, as far as the profile knows."""
    mode, budget = settings.resolved_mode, settings.max_deviation or 0.0
    doubt = None
    if mode is Mode.PLAIN:
        if budget:
            doubt = f"max_deviation {budget:g} is not made use of, as nothing drafts; give a draft model (draft)"
        return Choice(mode, None, DEFAULT_RULE, None, "plain: no drafter", doubt)
    if profile is None:
        if budget:
            what = "its profile was made with another drafter" if other_draft else "there is no profile of the pair"
            doubt = f"max_deviation {budget:g} is not made use of, as {what}; run via-sd-local calibrate"
        return Choice(mode, None, DEFAULT_RULE, None, f"{mode.value}: the default", doubt)
    level = profile.level(budget)
    if level is not None and level.mode == Mode.TIERED.value:
        rule = profile.rule(budget)
        assert rule is not None, "a level in mode tiered has thresholds"
        return Choice(Mode.TIERED, profile.mask, rule, budget, f"tiered: fastest within {budget:g} by the profile")
    lossless = Mode(profile.lossless)
    if lossless is Mode.EXACT and not (here and profile.has_mask):
        lossless = Mode.SD
    mask = profile.mask if lossless is Mode.EXACT else None
    rule = parse_rule(profile.speeds.exact_rule) if profile.speeds.exact_rule else DEFAULT_RULE
    if lossless is Mode.PLAIN:
        doubt = "by the profile plain decoding is fastest here, so nothing drafts; mode 'sd' drafts all the same"
    return Choice(lossless, mask, rule, None, f"{lossless.value}: the fastest lossless mode by the profile", doubt)


def _same_mask(text: str, profile: Profile) -> bool:
    n_layer = profile.verifier.n_layer
    return LayerMask.parse(text, n_layer) == LayerMask.parse(profile.mask, n_layer)


def _text(rule: Rule) -> str:
    return f"{rule.name}:{rule.accept:g},{rule.rewrite:g}"
