"""How many tokens of an answer are not the full model's choice, and why: pure text."""

from __future__ import annotations

from ..engine.stats import Stats


def deviation_text(stats: Stats) -> str:
    """Return the share of deviating tokens in words: by the slim tier, as audits estimate it, and by lenience."""
    if stats.deviation is None:
        return "not audited yet"
    causes = []
    if stats.slim_deviation is not None:
        causes.append(f"{stats.slim_deviation:.1%} by the slim tier, as audits estimate")
    if stats.lenient_deviation is not None:
        causes.append(f"{stats.lenient_deviation:.1%} by lenience")
    return f"about {stats.deviation:.1%} of tokens are not the full model's choice ({'; '.join(causes)})"
