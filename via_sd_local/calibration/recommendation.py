"""The recommendation of a mode from predicted speeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..engine.policy import Mode

MARGIN = 1.02  # a mode with more parts must be predicted to be faster by this factor, because predictions are noisy


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The fastest lossless mode, and the fastest mode within each deviation level."""

    lossless: Mode
    levels: dict[float, Mode]

    @property
    def pays(self) -> bool:
        """Whether any recommended mode uses the slim tier."""
        return self.lossless is Mode.EXACT or Mode.TIERED in self.levels.values()


def decide(plain: float, sd: float | None, exact: float | None, tiered: Mapping[float, float | None]) -> Recommendation:
    """Recommend modes from predicted tokens per second; None stands for a mode that cannot run.

    `tiered` maps deviation levels to speeds, None where no thresholds keep the level. Thresholds that keep a smaller
    level also keep a larger one. Raises ValueError for a speed that is not above 0.
    """
    speeds = {Mode.PLAIN: plain, Mode.SD: sd, Mode.EXACT: exact}
    for mode, speed in [*speeds.items(), *((Mode.TIERED, speed) for speed in tiered.values())]:
        if speed is not None and not speed > 0:
            raise ValueError(f"the speed of mode {mode.value} is {speed}; it must be above 0 tokens a second")
    lossless, best = Mode.PLAIN, plain
    for mode in (Mode.SD, Mode.EXACT):
        speed = speeds[mode]
        if speed is not None and speed > best * MARGIN:
            lossless, best = mode, speed
    levels: dict[float, Mode] = {}
    fastest = 0.0
    for level, speed in sorted(tiered.items()):
        fastest = max(fastest, speed or 0.0)
        levels[level] = Mode.TIERED if fastest > best * MARGIN else lossless
    return Recommendation(lossless, levels)
