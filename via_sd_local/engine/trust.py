"""How far the slim tier may decide alone: thresholds that become stricter as its deviations overdraw the budget."""

from __future__ import annotations

from .gate import Rule

_MOST_TIMES = 3  # times that the thresholds are tightened before the slim tier decides nothing any more


class SlimTrust:
    """The region rule of one generation."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._times = 0

    @property
    def decides(self) -> bool:
        """Whether the slim tier may still decide tokens."""
        return self._times <= _MOST_TIMES

    def tighten(self) -> None:
        """Demand more confidence from now on."""
        self._times += 1
        self.rule = self.rule.tighter()
