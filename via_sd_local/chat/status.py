"""What the chat says of an answer: pure text."""

from __future__ import annotations

from collections.abc import Mapping

from ..engine.stats import Stats
from ..engine.steps import Tier

_ENOUGH = 16  # tokens of an answer, for its speed to be compared


def status_line(
    stats: Stats, shares: Mapping[Tier, float], n_ctx: int, plain: float | None = None, no_drafts: str | None = None
) -> str:
    """One line about an answer; `plain` is the measured speed of plain decoding, in tokens a second."""
    parts = [f"{stats.completion_tokens} tokens"]
    speed = stats.tokens_per_second
    if speed is not None:
        parts.append(f"{speed:.1f} tokens/s")
        if plain is not None and comparable(stats):
            parts.append(f"{speed / plain:.2f} × plain ({plain:.1f})")  # noqa: RUF001
    if stats.mode == "tiered":
        parts.append(" ".join(f"{tier.value} {share:.0%}" for tier, share in shares.items()))
    elif stats.rejection_rate is not None:
        parts.append(f"{1 - stats.rejection_rate:.0%} of {stats.drafted} drafted tokens accepted")
    if no_drafts:
        parts.append(f"no drafts: {no_drafts}")
    if stats.mode == "tiered":
        parts.append("lossy: " + deviation_text(stats.deviation))
    parts.append(f"context {stats.prompt_tokens + stats.completion_tokens}/{n_ctx}")
    return f"[{', '.join(parts)}]"


def comparable(stats: Stats) -> bool:
    """Whether an answer was decoded otherwise than plainly, and is long enough for its speed to say something."""
    return stats.mode != "plain" and stats.completion_tokens >= _ENOUGH


def deviation_text(deviation: float | None) -> str:
    """What the audits say of a tiered answer."""
    return "not audited yet" if deviation is None else f"about {deviation:.1%} not the full model's choice, by audit"


def flat(counters: Mapping[str, object], prefix: str = "") -> list[str]:
    """Counters as lines `name: value`, nested ones as `name.name: value`."""
    lines: list[str] = []
    for name, value in counters.items():
        if isinstance(value, Mapping):
            lines += flat(value, f"{prefix}{name}.")
        else:
            lines.append(f"{prefix}{name}: {value:.4g}" if isinstance(value, float) else f"{prefix}{name}: {value}")
    return lines
