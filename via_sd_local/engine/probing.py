"""When to try an alternative that seems to lose, so that what is known of it stays true."""

from __future__ import annotations


class ProbeSchedule:
    """Counts decisions against an alternative, and says after how many of them to try it once.

    The interval doubles after each probe, from `first` up to `longest`.
    """

    def __init__(self, first: int, longest: int | None = None) -> None:
        """`longest` None is the same as `first`: a probe after every `first` decisions."""
        self._first = first
        self._longest = first if longest is None else longest
        self.reset()

    def reset(self) -> None:
        """Start again with the shortest interval."""
        self._interval = self._first
        self._decisions = 0

    def shorten(self) -> None:
        """Return to the shortest interval without forgetting the decisions since the last probe."""
        self._interval = self._first

    def decide(self) -> bool:
        """Count one decision against the alternative; return True if this one should be a probe instead."""
        self._decisions += 1
        if self._decisions < self._interval:
            return False
        self._decisions = 0
        self._interval = min(2 * self._interval, self._longest)
        return True
