"""Costs of passes on this machine: seconds by kind of pass and number of tokens, learned from passes as they happen.

On a CPU the cost of a batch is a staircase of the kernels (4 tokens can be cheaper than 3), so each size has its own
median. Sizes that were not seen are interpolated.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from ..json_form import from_json
from .probing import ProbeSchedule

_RETRY = 64  # decisions for the cheaper pass between probes of the dearer one
KEPT = 9  # passes of a size that are remembered; a median of so many is robust against a core that stalls


class Costs:
    """Medians of observed passes, in seconds, by kind (`full`, `slim`, `resume`, `draft`) and number of tokens."""

    def __init__(self, seconds: Mapping[str, Mapping[int, float]] | None = None) -> None:
        """Start with the given seconds by kind and number of tokens, or with an empty table."""
        self.frozen = False  # whether `observe` changes nothing
        self._passes: dict[str, dict[int, deque[float]]] = defaultdict(dict)
        self._medians: dict[str, dict[int, float]] = defaultdict(dict)
        for kind, sizes in (seconds or {}).items():
            for tokens, value in sizes.items():
                self.observe(kind, tokens, value)

    def observe(self, kind: str, tokens: int, seconds: float) -> None:
        """Learn the seconds of one pass, unless the table is frozen."""
        if self.frozen:
            return
        passes = self._passes[kind].setdefault(tokens, deque(maxlen=KEPT))
        passes.append(max(seconds, 1e-9))  # a clock may not move
        self._medians[kind][tokens] = statistics.median(passes)

    def knows(self, kind: str) -> bool:
        """Return whether any pass of this kind was observed."""
        return bool(self._medians.get(kind))

    def of(self, kind: str, tokens: int) -> float:
        """Return the seconds of a pass over `tokens` tokens; KeyError if no pass of this kind was observed.

        Costs are interpolated linearly between observed sizes, proportional to the tokens above the largest one, and
        constant below the smallest one.
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
        """Return the seconds of a full pass over tokens that the slim tier has seen; KeyError if none was observed.

        The cheaper of a resumed and an ordinary full pass counts: on a device the round trip of hidden states may cost
        more than the layers that resuming saves.
        """
        kinds = [kind for kind in ("resume", "full") if self.knows(kind)]
        return min(self.of(kind, tokens) for kind in kinds or ["full"])

    def to_json(self) -> dict[str, Any]:
        """Return the medians as `{kind: {tokens: seconds}}`."""
        return {kind: {str(size): value for size, value in sorted(row.items())} for kind, row in self._medians.items()}

    @classmethod
    def from_json(cls, data: Any) -> Costs:
        """Return the table from what `to_json` returned; raises ValueError that names the wrong entry."""
        table = from_json(dict[str, dict[str, float]], data, "costs")
        return cls({kind: {int(size): seconds for size, seconds in row.items()} for kind, row in table.items()})


class ResumeChoice:
    """Chooses between a resumed and an ordinary full pass over tokens that the slim tier has seen.

    Resuming is chosen until both costs are known; then the cheaper pass, with a probe of the dearer one now and then.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._probes = ProbeSchedule(_RETRY)

    def should_resume(self, tokens: int) -> bool:
        """Decide for a pass over so many tokens, and count the decision."""
        if not (self._costs.knows("resume") and self._costs.knows("full")):
            return True
        if self._costs.of("resume", tokens) <= self._costs.of("full", tokens):
            return True
        return self._probes.decide()
