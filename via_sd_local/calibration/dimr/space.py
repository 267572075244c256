"""The masks that a search may propose, and the trials of those that it proposed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...mask import LayerMask
from .objective import Objective, Score

RATIOS = (0.05, 0.6)  # range of the share of skipped sublayers, unless a ratio is requested
_TRIES = 50  # attempts to draw an untried mask


@dataclass(frozen=True, slots=True)
class Trial:
    """A mask and its score; None if llama.cpp rejected the mask. A quick score covers only a part of the text."""

    mask: LayerMask
    score: Score | None
    quick: bool = False


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """The best mask found among those that skip as many sublayers."""

    mask: LayerMask
    score: Score


@dataclass(frozen=True, slots=True)
class Space:
    """Masks of a model with `n_layer` layers that skip from `least` to `most` sublayers.

    Sublayers are numbered 2 · layer for the attention and 2 · layer + 1 for the FFN of a layer. With `keep_ends`, no
    mask skips a sublayer of the first or the last layer.
    """

    n_layer: int
    least: int
    most: int
    keep_ends: bool = False

    def __post_init__(self) -> None:
        n = len(self.skippable)
        if not 1 <= self.least <= self.most < 2 * self.n_layer or self.most > n:
            raise ValueError(
                f"masks would skip {self.least} to {self.most} sublayers; of {2 * self.n_layer}, at least one is to be "
                f"skipped and {2 * self.n_layer - n if self.keep_ends else 'one'} kept"
            )

    @property
    def skippable(self) -> range:
        """The sublayers that a mask may skip."""
        return range(2, 2 * self.n_layer - 2) if self.keep_ends else range(2 * self.n_layer)

    @classmethod
    def of(cls, n_layer: int, skip_ratio: float | None = None, *, keep_ends: bool = False) -> Space:
        """Return the space of RATIOS, or of the count nearest to `skip_ratio`; ValueError for one outside (0, 1)."""
        n = 2 * n_layer
        if skip_ratio is None:
            least = max(1, math.ceil(RATIOS[0] * n))
            most = max(least, math.floor(RATIOS[1] * n))
            return cls(n_layer, least, min(most, n - 4) if keep_ends else most, keep_ends)
        if not 0 < skip_ratio < 1:
            raise ValueError(f"skip_ratio is {skip_ratio}; it is a share of all sublayers, above 0 and below 1")
        count = min(max(1, round(skip_ratio * n)), n - 1)
        return cls(n_layer, count, count, keep_ends)

    @property
    def size(self) -> int:
        """The number of sublayers."""
        return 2 * self.n_layer

    def mask(self, sublayers: Iterable[int]) -> LayerMask:
        """Return the mask that skips these sublayers."""
        chosen = [int(sublayer) for sublayer in sublayers]  # NumPy's integers are no JSON
        return LayerMask.of(
            self.n_layer, attn=(s // 2 for s in chosen if s % 2 == 0), ffn=(s // 2 for s in chosen if s % 2)
        )

    def sublayers(self, mask: LayerMask) -> set[int]:
        """Return the indices of the sublayers that a mask skips."""
        return {2 * layer for layer in mask.attn} | {2 * layer + 1 for layer in mask.ffn}

    def bits(self, masks: Collection[LayerMask]) -> npt.NDArray[np.float64]:
        """Return the masks as rows `[len(masks), size]` with 1 where a sublayer is skipped."""
        rows = np.zeros((len(masks), self.size))
        for row, mask in zip(rows, masks, strict=True):
            row[list(self.sublayers(mask))] = 1
        return rows

    def holds(self, mask: LayerMask) -> bool:
        """Tell whether a mask skips from `least` to `most` sublayers, and none that must be kept."""
        return self.least <= len(mask) <= self.most and self.sublayers(mask).issubset(self.skippable)

    def draw(self, rng: np.random.Generator) -> LayerMask:
        """Draw a random mask: first the number of sublayers, uniformly, and then the sublayers."""
        count = rng.integers(self.least, self.most + 1)
        return self.mask(rng.choice(self.skippable, count, replace=False))

    def draw_new(self, rng: np.random.Generator, known: Collection[LayerMask]) -> LayerMask | None:
        """Draw a mask that is not in `known`; None after 50 failures, as in a small space."""
        drawn = (self.draw(rng) for _ in range(_TRIES))
        return next((mask for mask in drawn if mask not in known), None)


def front_of(trials: Iterable[Trial | FrontPoint], space: Space, objective: Objective) -> tuple[FrontPoint, ...]:
    """Return the mask with the least loss for each number of skipped sublayers in the space, fewest first."""
    best: dict[int, FrontPoint] = {}
    for trial in trials:
        if trial.score is None or not space.holds(trial.mask) or (isinstance(trial, Trial) and trial.quick):
            continue
        known = best.get(len(trial.mask))
        if known is None or trial.score.loss(objective) < known.score.loss(objective):
            best[len(trial.mask)] = FrontPoint(trial.mask, trial.score)
    return tuple(best[count] for count in sorted(best))
