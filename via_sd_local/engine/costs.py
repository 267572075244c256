"""What passes cost on this machine: seconds by kind and number of tokens, learned from passes as they happen.

A batch is not free on a CPU, and its cost is a staircase of the kernels (4 tokens can be cheaper than 3), so each size
has its own median. Sizes that were not seen are interpolated.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

_RETRY = 64  # confirmations between tries of the dearer way
KEPT = 9  # passes of a size that are remembered; their median stands up to a core that stalls now and then


class Costs:
    """Observations of passes; empty at first, or from `to_json`."""

    def __init__(self, seconds: Mapping[str, Mapping[int, float]] | None = None) -> None:
        """`seconds` by kind and size starts the table."""
        self.frozen = False
        self._passes: dict[str, dict[int, deque[float]]] = defaultdict(dict)
        self._medians: dict[str, dict[int, float]] = defaultdict(dict)
        for kind, sizes in (seconds or {}).items():
            for tokens, value in sizes.items():
                self.observe(kind, tokens, value)

    def observe(self, kind: str, tokens: int, seconds: float) -> None:
        """A pass took so long; nothing is learned from it while the table is frozen."""
        if self.frozen:
            return
        passes = self._passes[kind].setdefault(tokens, deque(maxlen=KEPT))
        passes.append(max(seconds, 1e-9))  # a clock may not move
        self._medians[kind][tokens] = statistics.median(passes)

    def knows(self, kind: str) -> bool:
        """Whether any pass of this kind was seen."""
        return bool(self._medians.get(kind))

    def of(self, kind: str, tokens: int) -> float:
        """Seconds of a pass of so many tokens; KeyError if no pass of this kind was seen.

        Between known sizes linearly; above the largest at its cost per token; below the smallest at its cost.
        """
        medians = self._medians[kind]
        if tokens in medians:
            return medians[tokens]
        if not medians:
            raise KeyError(kind)
        below = max((size for size in medians if size < tokens), default=None)
        above = min((size for size in medians if size > tokens), default=None)
        if below is None:
            assert above is not None
            return medians[above]
        if above is None:
            return medians[below] * tokens / below
        share = (tokens - below) / (above - below)
        return medians[below] + share * (medians[above] - medians[below])

    def confirming(self, tokens: int) -> float:
        """Seconds to have the full model compute so many tokens that the slim tier has seen; KeyError if unknown.

        By a resumed or by a full pass, whichever costs less: on a device the round trip of hidden states may cost more
        than the layers that resuming saves.
        """
        kinds = [kind for kind in ("resume", "full") if self.knows(kind)]
        return min(self.of(kind, tokens) for kind in kinds or ["full"])

    def to_json(self) -> dict[str, Any]:
        """`{kind: {size: seconds}}`, medians."""
        return {kind: {str(size): value for size, value in sorted(row.items())} for kind, row in self._medians.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, float]]) -> Costs:
        """The table from what `to_json` returned."""
        return cls({kind: {int(size): value for size, value in row.items()} for kind, row in data.items()})


class ResumeChoice:
    """Whether a full pass over tokens that the slim tier has seen should resume from its hidden states.

    It should while nothing else is known. Now and then the dearer way is tried, so that what is known of it stays true.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._dearer = 0

    def __call__(self, tokens: int) -> bool:
        """For so many tokens."""
        if not (self._costs.knows("resume") and self._costs.knows("full")):
            return True
        cheaper = self._costs.of("resume", tokens) <= self._costs.of("full", tokens)
        self._dearer += not cheaper
        return cheaper or self._dearer % _RETRY == 0
