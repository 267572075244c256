"""The guided search: score every sublayer alone, grow a mask greedily, then exchange sublayers of the best masks.

Single sublayers only need to be ranked, for which quick scores suffice. The result of the search is a front: for each
number of skipped sublayers, the mask with the least loss. The planned number of evaluations divides the work between
the three phases; exchanges continue beyond the plan.
"""

from __future__ import annotations

import math
from itertools import islice

import numpy as np

from ...mask import LayerMask
from .objective import Objective, Score
from .space import Space
from .strategies import Worth
from .surrogate import Doubles, Surrogate

_ALONE = 0.4  # of the planned evaluations, for single sublayers
_GROWTH = 0.4  # of the remaining evaluations
_MOST_CANDIDATES = 4  # in a step of growth
_HOPELESS = 0.3  # masks with a lower agreement are not grown further
_AROUND = 0.7  # of the exchanges, near the number of skipped sublayers with the highest worth
_JITTER = 3  # sublayers more or fewer than that number
_GLOBAL = 0.4  # of the proposals, from the surrogate model alone
_TRIES = 24  # attempts to find an untried proposal


class Guided:
    """Proposes masks from the estimated loss of each sublayer."""

    name = "guided"

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        objective: Objective = "kl",
        worth: Worth,
        evaluations: int,
        quick_cost: float = 1.0,
    ) -> None:
        """Plan the phases for a number of evaluations; with few, neighbouring sublayers are scored together.

        `quick_cost` is the cost of a quick score as a share of an evaluation, above 0 up to 1. Raises ValueError for
        values out of range.
        """
        if evaluations < 1:
            raise ValueError(f"the plan has {evaluations} evaluations; it needs at least one")
        if not 0 < quick_cost <= 1:
            raise ValueError(f"quick_cost is {quick_cost}; it is a share of a whole evaluation, above 0 up to 1")
        self._space, self._seed, self._objective, self._worth = space, seed, objective, worth
        self._told = 0
        self._losses: dict[LayerMask, float] = {}  # inf for a refused one
        self._front: dict[int, tuple[float, LayerMask, float]] = {}  # count -> loss, mask, worth
        size = 1
        while math.ceil(space.size / size) * quick_cost > max(quick_cost, _ALONE * evaluations):
            size *= 2
        self._groups = [range(i, min(i + size, space.size)) for i in range(0, space.size, size)]
        self._single = np.full(space.size, np.inf)
        left = _GROWTH * max(0, evaluations - len(self._groups) * quick_cost)
        self._first = (space.least + 1) // 2  # smaller masks are not wanted; the first steps are sure, anyway
        steps = max(1, int(left / 2) - 1)
        self._step = max(1, math.ceil((space.most - self._first) / steps))
        steps = 1 + math.ceil((space.most - self._first) / self._step)
        self._width = max(1, min(_MOST_CANDIDATES, int(left / steps)))
        self._grown: frozenset[int] = frozenset()
        self._candidates: list[frozenset[int]] = []  # of the step of growth at hand
        self._results: list[tuple[float, int, float]] = []  # their losses, places, agreements
        self._growing = True

    @property
    def quick(self) -> bool:
        return self._told < len(self._groups)

    def ask(self) -> LayerMask | None:
        if self.quick:
            return self._space.mask(self._groups[self._told])
        if self._growing:
            return self._space.mask(self._candidates[len(self._results)])
        return self._exchange()

    def tell(self, mask: LayerMask, score: Score | None) -> None:
        loss = math.inf if score is None else score.loss(self._objective)
        if self.quick:
            self._tell_group(loss)
            return
        self._told += 1
        self._losses[mask] = loss
        if score is not None and self._space.holds(mask):
            known = self._front.get(len(mask))
            if known is None or loss < known[0]:
                self._front[len(mask)] = (loss, mask, self._worth(mask, score))
        if self._growing:
            self._results.append((loss, len(self._results), 0.0 if score is None else score.agreement))
            if len(self._results) == len(self._candidates):
                self._grow()

    def _tell_group(self, loss: float) -> None:
        """Divide the loss of neighbours that were scored together among them."""
        group = self._groups[self._told]
        refused_together = len(group) > 1 and not math.isfinite(loss)  # each of them alone may still be possible
        self._single[list(group)] = 1.0 if refused_together else loss / len(group)
        self._told += 1
        if not self.quick:
            self._plan_step()

    #
    # growth
    #

    def _surrogate(self) -> Surrogate:
        trials = [(mask, loss) for mask, loss in self._losses.items() if math.isfinite(loss)]
        return Surrogate(self._single, self._space.bits([mask for mask, _ in trials]), [loss for _, loss in trials])

    def _plan_step(self) -> None:
        """Choose the candidates of the next step: the sublayers with the least estimated loss, varying the last one."""
        weights = self._surrogate().weights(self._grown)
        order = [int(i) for i in np.argsort(weights, kind="stable") if i not in self._grown and np.isfinite(weights[i])]
        step = min(self._step if self._grown else self._first, self._space.most - len(self._grown))
        if step < 1 or len(order) < step:
            self._growing = False
            return
        firsts, lasts = order[: step - 1], order[step - 1 : step - 1 + self._width]
        self._candidates = [self._grown.union(firsts, [last]) for last in lasts]
        self._results = []

    def _grow(self) -> None:
        """Keep the best candidate."""
        loss, best, agreement = min(self._results)
        self._grown = self._candidates[best]
        hopeless = agreement < _HOPELESS and len(self._grown) >= self._space.least
        if not math.isfinite(loss) or hopeless:
            self._growing = False
        else:
            self._plan_step()

    #
    # exchange
    #

    def _exchange(self) -> LayerMask | None:
        """Return an untried mask: one of the front with a few sublayers exchanged, or the best of the surrogate."""
        rng = np.random.default_rng([self._seed, self._told])
        surrogate = self._surrogate()
        for _ in range(_TRIES):
            count = self._choose_count(rng)
            gap = count not in self._front
            start = self._nearest(count if gap else count + int(rng.integers(-1, 2)))
            weights = surrogate.weights(start, None if gap else rng)
            if not start or (not gap and rng.random() < _GLOBAL):
                chosen = set(islice(self._cheapest(weights), count))
            else:  # between neighbours on the front, or to fill a gap in it, nothing need be exchanged
                fewest = 0 if len(start) != count else 1
                chosen = self._swap(start, count, weights, 0 if gap else min(fewest + int(rng.geometric(0.6)) - 1, 3))
            mask = self._space.mask(chosen)
            if len(chosen) == count and mask not in self._losses:
                return mask
        return self._space.draw_new(rng, self._losses.keys())

    def _choose_count(self, rng: np.random.Generator) -> int:
        space = self._space
        if self._front and rng.random() < _AROUND:
            best = max(self._front, key=lambda count: self._front[count][2])
            return int(np.clip(best + rng.integers(-_JITTER, _JITTER + 1), space.least, space.most))
        last = max(self._front, default=space.most)  # growth may have ended early
        gaps = [count for count in range(space.least, last) if count not in self._front]
        return int(rng.choice(gaps)) if gaps else int(rng.integers(space.least, last + 1))

    def _nearest(self, count: int) -> set[int]:
        """Return the sublayers of the mask of the front that skips nearest to `count`."""
        if not self._front:
            return set()
        nearest = min(self._front, key=lambda known: (abs(known - count), known))
        return self._space.sublayers(self._front[nearest][1])

    def _cheapest(self, weights: Doubles) -> list[int]:
        return [int(i) for i in np.argsort(weights, kind="stable") if np.isfinite(weights[i])]

    def _swap(self, start: set[int], count: int, weights: Doubles, swaps: int) -> set[int]:
        """Bring the number of sublayers to `count`, and exchange `swaps` of the most costly for the cheapest others."""
        order = self._cheapest(weights)
        inside, outside = [i for i in order if i in start], [i for i in order if i not in start]
        swaps = min(swaps, len(inside), len(outside))
        dropped = swaps + max(0, len(start) - count)
        added = swaps + max(0, count - len(start))
        return start.difference(inside[len(inside) - dropped :]).union(outside[:added])
