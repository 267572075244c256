"""Upper confidence bounds of a share, from counted events."""

from __future__ import annotations

from collections.abc import Sequence

CONFIDENCE = 0.95


def upper_bound(hits: float, of: float, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided upper confidence bound of the share of `hits` in `of` events; 1 for no events.

    The bound is exact for independent events (Clopper and Pearson, 1934). Both counts may be fractions, as for
    clustered events that are discounted (`discounted_bound`).
    """
    if of <= 0 or hits >= of:
        return 1.0
    from scipy.stats import beta

    return float(beta.ppf(confidence, hits + 1, of - hits))


def least_evidence(share: float, confidence: float = CONFIDENCE) -> int:
    """Return the number of events without a single hit that bounds the share of hits by `share`."""
    from math import ceil, log

    return ceil(log(1 - confidence) / log(1 - share))


def design_effect(counts: Sequence[tuple[int, int]]) -> float:
    """Return the variance of the share of hits over (hits, of) groups, as a multiple of that of independent events.

    The result is at least 1 (Kish's design effect). Tokens of one answer resemble each other, so they are worth fewer
    independent ones.
    """
    hits, of = sum(hit for hit, _ in counts), sum(n for _, n in counts)
    groups = sum(n > 0 for _, n in counts)
    if groups < 2 or not 0 < hits < of:
        return 1.0
    share = hits / of
    between = groups / (groups - 1) * sum((hit - share * n) ** 2 for hit, n in counts)
    return max(1.0, between / (share * (1 - share) * of))


def discounted_bound(counts: Sequence[tuple[int, int]], confidence: float = CONFIDENCE) -> float:
    """Return the upper confidence bound of the share of hits in (hits, of) groups.

    Both counts are divided by the design effect, so that clustered events count as fewer independent ones.
    """
    effect = design_effect(counts)
    return upper_bound(sum(hit for hit, _ in counts) / effect, sum(n for _, n in counts) / effect, confidence)
