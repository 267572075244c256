"""The choice among alternatives by the tokens per second that each of them yielded lately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .experience import Yield
from .probing import ProbeSchedule

_FIRST = 3  # blocks of each alternative before one of them is preferred
_SOONEST, _RAREST = 6, 32  # blocks between probes of the alternatives that lose
_FORGET = 0.9  # weight of an older block relative to the next newer one of the same alternative


class Race:
    """Running yields of alternatives; the only assumption is that past yields predict future ones."""

    def __init__(self, alternatives: Sequence[str]) -> None:
        """Create the race; alternatives are tried in the order given."""
        self._tokens = dict.fromkeys(alternatives, 0.0)
        self._seconds = dict.fromkeys(alternatives, 0.0)
        self._blocks = dict.fromkeys(alternatives, 0)
        self._probes = ProbeSchedule(_SOONEST, _RAREST)
        self._preferred: str | None = None  # by the last choice; None until each alternative was tried `_FIRST` times

    @property
    def best(self) -> str:
        """The alternative with the highest rate."""
        return max(self._tokens, key=self.rate)

    def next_choice(self) -> str:
        """Choose the alternative for the next block, and count the choice.

        Each alternative is tried a few times; then the best one is chosen, with a probe of another now and then.
        """
        rarest = min(self._blocks, key=lambda name: self._blocks[name])
        if self._blocks[rarest] < _FIRST:
            return rarest
        best = self.best
        if best != self._preferred:
            self._preferred = best
            self._probes.reset()
        if not self._probes.decide():
            return best
        return min((name for name in self._blocks if name != best), key=lambda name: self._blocks[name], default=best)

    def observe(self, name: str, tokens: int, seconds: float) -> None:
        """Learn that a block of this alternative yielded some tokens in some seconds."""
        if self._preferred not in (None, name) and tokens > seconds * self.rate(self.best):
            self._probes.shorten()  # a probe that went well is repeated soon
        self._tokens[name] = _FORGET * self._tokens[name] + tokens
        self._seconds[name] = _FORGET * self._seconds[name] + seconds
        self._blocks[name] += 1

    @property
    def yields(self) -> dict[str, Yield]:
        """The running yields of the alternatives that were tried."""
        return {
            name: Yield(tokens, self._seconds[name]) for name, tokens in self._tokens.items() if self._seconds[name] > 0
        }

    def recall(self, yields: Mapping[str, Yield]) -> None:
        """Start from earlier yields, at half their weight, so that no alternative has to be tried first.

        Nothing happens unless all alternatives are among them.
        """
        if not yields.keys() >= self._tokens.keys():
            return
        for name in self._tokens:
            self._tokens[name], self._seconds[name] = yields[name].tokens / 2, yields[name].seconds / 2
            self._blocks[name] = _FIRST

    def rate(self, name: str) -> float:
        """Return the tokens per second of an alternative; 0 before its first block."""
        return self._tokens[name] / self._seconds[name] if self._seconds[name] else 0.0
