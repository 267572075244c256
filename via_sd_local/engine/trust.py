"""How far the slim tier may decide alone: how often its decisions deviate by audits, and thresholds that tighten."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .gate import Rule
from .probing import ProbeSchedule

_MOST_TIMES = 3  # times that the thresholds are tightened before the slim tier decides nothing any more
_ENOUGH = 12  # audited decisions from which on the rate is more than a guess
_FORGET = 0.995  # weight of an older decision relative to the next newer one
_Z = 1.28  # of a one-sided 90 % confidence bound
_FIRST_TRIAL, _RAREST_TRIAL = 4, 64  # blocks between trials of a slim tier whose decisions are not covered


class SlimRecord:
    """A running rate of deviations among audited decisions, which starts without any decision."""

    def __init__(self) -> None:
        self._decisions = 0.0
        self._deviations = 0.0

    def observe(self, deviations: Iterable[float]) -> None:
        """Learn the deviation, from 0 to 1, of each of some audited decisions."""
        for deviation in deviations:
            self._decisions = _FORGET * self._decisions + 1
            self._deviations = _FORGET * self._deviations + deviation

    @property
    def is_new(self) -> bool:
        """Whether too few decisions were audited to rely on the rate."""
        return self._decisions < _ENOUGH

    @property
    def rate(self) -> float:
        """The upper 90 % confidence bound of the rate (Wilson's score interval), from 0 to 1; 1 for no decisions."""
        n, hits = self._decisions, self._deviations
        if n == 0:
            return 1.0
        share = min(hits / n, 1.0)
        spread = _Z * math.sqrt(share * (1 - share) / n + (_Z / (2 * n)) ** 2)
        return min((share + _Z * _Z / (2 * n) + spread) / (1 + _Z * _Z / n), 1.0)


class SlimTrust:
    """The region rule as far as it was tightened, and the record of the slim tier under it."""

    def __init__(self, rule: Rule) -> None:
        self._rules = [rule]
        while len(self._rules) <= _MOST_TIMES:
            self._rules.append(self._rules[-1].tighter())
        self._records = [SlimRecord() for _ in self._rules]
        self._times = 0  # the rule was tightened; one more than there are rules if the slim tier decides nothing
        self._trials = ProbeSchedule(_FIRST_TRIAL, _RAREST_TRIAL)

    @property
    def rule(self) -> Rule:
        """The rule in force."""
        return self._rules[min(self._times, _MOST_TIMES)]

    @property
    def decides(self) -> bool:
        """Whether the slim tier may still decide tokens."""
        return self._times <= _MOST_TIMES

    @property
    def rate(self) -> float:
        """The rate of deviations to expect, at an upper confidence bound; 1 as long as nothing is known.

        A tighter rule is taken to deviate at most as often as a laxer one.
        """
        return min(record.rate for record in self._records[: self._times + 1])

    def observe(self, deviations: Iterable[float]) -> None:
        """Learn the deviation, from 0 to 1, of each of some decisions under the rule in force."""
        self._records[min(self._times, _MOST_TIMES)].observe(deviations)

    def decide_trial(self) -> bool:
        """Decide whether to ask the slim tier although what it decides has to be audited at once; count the decision.

        It is asked as long as little is known of it, and afterwards now and then.
        """
        return self._records[min(self._times, _MOST_TIMES)].is_new or self._trials.decide()

    def tighten(self) -> None:
        """Demand more confidence from now on."""
        self._times = min(self._times + 1, _MOST_TIMES + 1)

    def relax(self) -> None:
        """Take back one tightening, as at the start of another answer."""
        self._times = max(self._times - 1, 0)
