"""What passes cost on this machine: seconds by kind and number of tokens, learned from passes as they happen.

A batch is not free on a CPU, and its cost is a staircase of the kernels (4 tokens can be cheaper than 3), so each size
has its own median. Sizes that were not seen are interpolated.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

KEPT = 9  # passes of a size that are remembered; their median stands up to a core that stalls now and then


class Costs:
    """Observations of passes; empty at first, or from `to_json`."""

    def __init__(self, seconds: Mapping[str, Mapping[int, float]] | None = None) -> None:
        """`seconds` by kind and size starts the table."""
        self._passes: dict[str, dict[int, deque[float]]] = defaultdict(dict)
        self._medians: dict[str, dict[int, float]] = defaultdict(dict)
        for kind, sizes in (seconds or {}).items():
            for tokens, value in sizes.items():
                self.observe(kind, tokens, value)

    def observe(self, kind: str, tokens: int, seconds: float) -> None:
        """A pass took so long."""
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

    def to_json(self) -> dict[str, Any]:
        """`{kind: {size: seconds}}`, medians."""
        return {kind: {str(size): value for size, value in sorted(row.items())} for kind, row in self._medians.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, float]]) -> Costs:
        """The table from what `to_json` returned."""
        return cls({kind: {int(size): value for size, value in row.items()} for kind, row in data.items()})
