"""Which of several ways yields more tokens a second, by what each of them yielded lately."""

from __future__ import annotations

from collections.abc import Sequence

_FIRST = 3  # blocks of each way, before any is preferred
_SOONEST, _RAREST = 6, 32  # blocks between tries of the other ways: twice as many each time
_FORGET = 0.9  # what an older block weighs beside a newer one of its way


class Race:
    """Running yields; nothing is assumed of the ways but that what they yielded says what they will yield."""

    def __init__(self, ways: Sequence[str]) -> None:
        """The first of them are tried first."""
        self._tokens = dict.fromkeys(ways, 0.0)
        self._seconds = dict.fromkeys(ways, 0.0)
        self._blocks = dict.fromkeys(ways, 0)
        self._since_try = 0
        self._try_after = _SOONEST
        self._best: str | None = None  # at the last choice

    @property
    def best(self) -> str:
        """The way that yielded most."""
        return max(self._tokens, key=self.rate)

    def choose(self) -> str:
        """The way to go next: each of them a few times, then the best one, and now and then another."""
        rarest = min(self._blocks, key=lambda way: self._blocks[way])
        if self._blocks[rarest] < _FIRST:
            return rarest
        best = self.best
        if best != self._best:
            self._best, self._since_try, self._try_after = best, 0, _SOONEST
        self._since_try += 1
        if self._since_try < self._try_after:
            return best
        self._since_try, self._try_after = 0, min(2 * self._try_after, _RAREST)
        return min((way for way in self._blocks if way != best), key=lambda way: self._blocks[way], default=best)

    def observe(self, way: str, tokens: int, seconds: float) -> None:
        """A block of this way yielded so many tokens in so many seconds."""
        if self._best not in (None, way) and tokens > seconds * self.rate(self.best):
            self._try_after = _SOONEST  # a try that went well is repeated soon
        self._tokens[way] = _FORGET * self._tokens[way] + tokens
        self._seconds[way] = _FORGET * self._seconds[way] + seconds
        self._blocks[way] += 1

    def rate(self, way: str) -> float:
        """Tokens a second; 0 before it was tried."""
        return self._tokens[way] / self._seconds[way] if self._seconds[way] else 0.0
