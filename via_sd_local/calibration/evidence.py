"""How large a share may be, given what was counted."""

from __future__ import annotations

from collections.abc import Sequence

CONFIDENCE = 0.95


def upper_bound(hits: float, of: float, confidence: float = CONFIDENCE) -> float:
    """The one-sided upper bound of a share, exact for independent events (Clopper and Pearson); 1 for no events.

    `hits` and `of` may be fractions, as `discounted` gives them.
    """
    if of <= 0 or hits >= of:
        return 1.0
    from scipy.stats import beta

    return float(beta.ppf(confidence, hits + 1, of - hits))


def least_evidence(share: float, confidence: float = CONFIDENCE) -> int:
    """The events that are needed, all of them misses, before a share can be said to be at most `share`."""
    from math import ceil, log

    return ceil(log(1 - confidence) / log(1 - share))


def design_effect(counts: Sequence[tuple[int, int]]) -> float:
    """By how much the hits of (hits, of) groups cluster: the variance of a share, as a multiple of independent events'.

    At least 1. Tokens of one answer resemble each other, so that fewer are as good as independent ones.
    """
    hits, of = sum(hit for hit, _ in counts), sum(n for _, n in counts)
    groups = sum(n > 0 for _, n in counts)
    if groups < 2 or not 0 < hits < of:
        return 1.0
    share = hits / of
    between = groups / (groups - 1) * sum((hit - share * n) ** 2 for hit, n in counts)
    return max(1.0, between / (share * (1 - share) * of))


def discounted_bound(counts: Sequence[tuple[int, int]], confidence: float = CONFIDENCE) -> float:
    """The upper bound of the share of hits in (hits, of) groups, with as many events as they are worth."""
    effect = design_effect(counts)
    return upper_bound(sum(hit for hit, _ in counts) / effect, sum(n for _, n in counts) / effect, confidence)
