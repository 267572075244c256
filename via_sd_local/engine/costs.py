"""Costs of passes on this machine: seconds by kind of pass and number of tokens, learned from passes as they happen.

On a CPU the cost of a batch is a staircase of the kernels (4 tokens can be cheaper than 3), so each size has its own
median. Sizes between those that were seen are interpolated.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..json_form import from_json
from .probing import ProbeSchedule

_RETRY = 64  # decisions for the cheaper pass between probes of the dearer one
KEPT = 9  # passes of a size that are remembered; a median of so many is robust against a core that stalls
_FEW = 3  # passes of a size from which on they alone decide, and what was known before does not count any more
_TELLING = 5  # passes of a size that can disprove what was known before
_FASTER = 1.5  # times as fast: what disproves it


@dataclass(frozen=True, slots=True)
class PassCost:
    """The cost of passes of one kind and size: their median, their number, and their range relative to the median."""

    seconds: float
    samples: int
    spread: float


class Costs:
    """Medians of observed passes, in seconds, by kind (`full`, `slim`, `resume`, `draft`) and number of tokens."""

    def __init__(self, seconds: Mapping[str, Mapping[int, float]] | None = None) -> None:
        """Start with seconds that are known by kind and number of tokens, or with an empty table.

        Known seconds hold until passes disprove them: where some passes of one size are much faster, the machine was
        busy then, and all of them are forgotten, lest sizes that are not run seem too dear for ever. Slower passes
        disprove nothing, since the machine may be busy now, or the text long; their own medians tell.
        """
        self.frozen = False  # whether `observe` changes nothing
        self.were_disproved = False  # whether the seconds known at the start were forgotten
        self._known = {kind: dict(sizes) for kind, sizes in (seconds or {}).items()}
        self._passes: dict[str, dict[int, deque[float]]] = defaultdict(dict)
        self._medians: dict[str, dict[int, float]] = {}
        self._set_medians()

    def observe(self, kind: str, tokens: int, seconds: float) -> None:
        """Learn the seconds of one pass, unless the table is frozen."""
        if self.frozen:
            return
        passes = self._passes[kind].setdefault(tokens, deque(maxlen=KEPT))
        passes.append(max(seconds, 1e-9))  # a clock may not move
        known = self._known.get(kind, {}).get(tokens)
        if known is not None and len(passes) >= _TELLING:
            median = statistics.median(passes)
            if known / median > _FASTER:
                self._known.clear()
                self.were_disproved = True
                self._set_medians()
                return
        self._medians.setdefault(kind, {})[tokens] = self._median(kind, tokens)

    def _median(self, kind: str, tokens: int) -> float:
        passes: list[float] = [*self._passes[kind].get(tokens, ())] if kind in self._passes else []
        known = self._known.get(kind, {}).get(tokens)
        if known is not None and len(passes) < _FEW:
            passes.append(known)
        return statistics.median(passes)

    def _set_medians(self) -> None:
        sizes = {kind: {*row} for kind, row in self._known.items()}
        for kind, row in self._passes.items():
            sizes.setdefault(kind, set()).update(row)
        self._medians = {kind: {size: self._median(kind, size) for size in row} for kind, row in sizes.items() if row}

    def knows(self, kind: str) -> bool:
        """Return whether the cost of any pass of this kind is known."""
        return bool(self._medians.get(kind))

    def largest(self, kind: str) -> int:
        """Return the largest number of tokens for which the cost of this kind of pass is known; 0 for none."""
        return max(self._medians.get(kind, ()), default=0)

    def of(self, kind: str, tokens: int) -> float:
        """Return the seconds of a pass over `tokens` tokens; KeyError if the cost of no pass of this kind is known.

        Costs are interpolated linearly between known sizes, continued as between the two largest ones, and constant
        below the smallest one. A single size says nothing of how costs grow: where only one is known, larger passes are
        taken to cost as much, until one is run. Drafts of `Pace` grow step by step there.
        """
        medians = self._medians.get(kind)
        if not medians:
            raise KeyError(kind)
        if tokens in medians:
            return medians[tokens]
        below = sorted(size for size in medians if size < tokens)
        above = min((size for size in medians if size > tokens), default=None)
        if not below:
            return medians[min(medians)]
        if above is None:
            if len(below) == 1:
                return medians[below[0]]
            low, high = below[-2:]
            return medians[high] + (tokens - high) * max(0.0, medians[high] - medians[low]) / (high - low)
        share = (tokens - below[-1]) / (above - below[-1])
        return medians[below[-1]] + share * (medians[above] - medians[below[-1]])

    def confirming(self, tokens: int) -> float:
        """Return the seconds of a full pass over tokens that the slim tier has seen; KeyError if none was observed.

        The cheaper of a resumed and an ordinary full pass counts: on a device the round trip of hidden states may cost
        more than the layers that resuming saves.
        """
        kinds = [kind for kind in ("resume", "full") if self.knows(kind)]
        return min(self.of(kind, tokens) for kind in kinds or ["full"])

    def samples(self, kind: str, tokens: int) -> PassCost | None:
        """Return the cost of the passes of this kind and size that were observed; None without any."""
        passes = self._passes[kind].get(tokens) if kind in self._passes else None
        if not passes:
            return None
        median = statistics.median(passes)
        return PassCost(median, len(passes), (max(passes) - min(passes)) / median)

    def observed(self) -> dict[str, dict[str, PassCost]]:
        """Return the costs of all observed passes as `{kind: {tokens: cost}}`."""
        return {
            kind: {str(size): cost for size in sorted(row) if (cost := self.samples(kind, size)) is not None}
            for kind, row in self._passes.items()
        }

    def without_single_passes(self) -> Costs:
        """Return the table without the sizes above one of which a single pass was observed: it may be an outlier."""
        other = Costs()
        for kind, row in self._passes.items():
            for size, passes in row.items():
                if size == 1 or len(passes) > 1:
                    for seconds in passes:
                        other.observe(kind, size, seconds)
        return other

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
