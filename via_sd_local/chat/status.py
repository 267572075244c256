"""The status line after an answer: pure text."""

from __future__ import annotations

from collections.abc import Mapping

from ..engine.policy import Mode
from ..engine.stats import Stats
from ..engine.steps import Tier
from .deviation_text import deviation_text

_MIN_TOKENS = 16  # shorter answers are not compared with plain decoding


def status_line(
    stats: Stats,
    shares: Mapping[Tier, float],
    n_ctx: int,
    plain: float | None = None,
    why_no_drafts: str | None = None,
    why_no_slim: str | None = None,
) -> str:
    """Return one line of statistics about an answer.

    `shares` is each tier's share of the answer's tokens, `n_ctx` the size of the context in tokens, `plain` the
    measured speed of plain decoding in tokens per second, `why_no_drafts` the reason if nothing was drafted, and
    `why_no_slim` the reason if mode `tiered` never asked the slim tier.
    """
    parts = [f"{stats.completion_tokens} token{'' if stats.completion_tokens == 1 else 's'}"]
    speed = stats.tokens_per_second
    if speed is not None:
        parts.append(f"{speed:.1f} tokens/s")
        if plain is not None and is_comparable(stats):
            parts.append(f"{speed / plain:.2f} × plain ({plain:.1f})")  # noqa: RUF001
    mode = Mode(stats.mode)
    if mode.trusts_slim_tier:
        parts.append(" ".join(f"{tier.value} {share:.0%}" for tier, share in shares.items()))
    elif stats.rejection_rate is not None:
        parts.append(f"{1 - stats.rejection_rate:.0%} of {stats.drafted} drafted tokens accepted")
    if why_no_drafts:
        parts.append(f"no drafts: {why_no_drafts}")
    elif stats.why_off:
        parts.append(f"drafting off: {stats.why_off}")
    if why_no_slim:
        parts.append(f"the slim tier was never asked: {why_no_slim}")
    if mode.is_lossy:
        parts.append(f"lossy: {deviation_text(stats)}")
    parts.append(f"context {stats.prompt_tokens + stats.completion_tokens}/{n_ctx}")
    return f"[{', '.join(parts)}]"


def is_comparable(stats: Stats) -> bool:
    """Return whether an answer is worth comparing with plain decoding: decoded in another mode, and long enough."""
    return stats.mode != "plain" and stats.completion_tokens >= _MIN_TOKENS
