"""The text that describes a profile on a terminal."""

from __future__ import annotations

from ..mask import LayerMask
from ..profiles.profile import Level, Profile

TIERS = {
    "p-q": "the draft agrees with the full model",
    "q'-q": "the slim tier agrees with the full model",
    "p-q'": "the draft agrees with the slim tier",
}


def summary(profile: Profile) -> list[str]:
    """Return the lines that describe a profile: its mask, figures, predicted speeds and recommendation."""
    draft = f", draft {profile.draft.file}" if profile.draft else ", no draft model"
    lines = [f"{profile.verifier.file}{draft}", f"created {profile.created} by {profile.program}", ""]
    lines += [_mask_line(profile)]
    if profile.search is not None:
        search = profile.search
        cut = "" if search.complete else ", cut short"
        lines.append(
            f"search: strategy {search.strategy}, objective {search.objective}, {search.evaluations} masks in "
            f"{search.seconds:.0f} s, seed {search.seed}{cut}"
        )
    texts = profile.texts
    lines.append(
        f"text: {texts.name}, {texts.prompts} prompts; the figures below are for {texts.held_out_tokens} tokens of "
        "answers that were held out from the search"
    )
    lines += [f"{TIERS.get(name, name)} on {100 * a.share:.1f} % of them" for name, a in profile.agreement.items()]
    if profile.delta is not None:
        sign = "above" if profile.delta.delta > 0 else "not above"
        lines.append(f"the paper's criterion Δ(u) is {profile.delta.delta:+.3f} nats per token, {sign} 0")
    lines += ["", *_speed_lines(profile), "", *verdict(profile)]
    return lines + [f"note: {note}" for note in profile.notes]


def _mask_line(profile: Profile) -> str:
    if not profile.has_mask:
        return "no slim tier"
    mask = LayerMask.parse(profile.mask, profile.verifier.n_layer)
    line = f"the slim tier skips {mask} ({len(mask)} of {2 * mask.n_layer} sublayers)"
    return f"{line}; no resume: {profile.no_resume}" if profile.no_resume else line


def _speed_lines(profile: Profile) -> list[str]:
    table = profile.costs[0] if profile.costs else None
    where = f" on {table.machine}, {table.threads} thread{'s' * (table.threads > 1)}" if table else ""
    speeds = profile.speeds
    lines = [f"predicted tokens per second{where}:"]
    for name, speed in (("plain", speeds.plain), ("sd", speeds.sd), ("exact", speeds.exact)):
        if speed is not None:
            lines.append(f"  {name:<22} {speed:7.1f}   the full model's text")
    return lines + [_level_line(level) for level in profile.levels]


def _level_line(level: Level) -> str:
    name = f"tiered, at most {100 * level.max_deviation:g} %"
    best = level.best
    if best is None or best.tokens_per_second is None:
        why = next((thresholds.why for thresholds in level.rules.values() if thresholds.why), "no thresholds")
        return f"  {name:<22}       -   {why}"
    share = 100 * (best.deviations + best.lenient) / best.tokens
    slim = f"slim tier: {best.deviations}, at most {100 * best.bound:.2g} % at 95 % confidence"
    return (
        f"  {name:<22} {best.tokens_per_second:7.1f}   lossy: {share:.1f} % of {best.tokens} tokens deviate ({slim}); "
        f"{best.rule}"
    )


def verdict(profile: Profile) -> list[str]:
    """Return the lines that say which mode is recommended, and whether the slim tier pays."""
    paying = [level for level in profile.levels if level.mode == "tiered"]
    lines = []
    if profile.draft is None:
        lines.append("Without a draft model, only the mask was searched for; give --draft to compare the modes.")
    elif not paying and profile.lossless != "exact":
        lines.append("The slim tier does not pay here: no mode that uses it is faster than the modes without it.")
    lines.append(f"Recommended: {profile.lossless}, which is lossless.")
    if paying:
        least = paying[0]
        gain = ((least.best.tokens_per_second or 0.0) if least.best else 0.0) / _lossless_speed(profile) - 1
        lines.append(
            f"With --max-deviation {least.max_deviation:g} or more: tiered, which is lossy; {100 * gain:.0f} % faster "
            f"at {100 * least.max_deviation:g} %."
        )
    return lines


def _lossless_speed(profile: Profile) -> float:
    return getattr(profile.speeds, profile.lossless) or profile.speeds.plain
