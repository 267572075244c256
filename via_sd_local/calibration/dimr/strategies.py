"""Strategies that propose masks: each is asked for a mask and told its score, without access to any model.

`ask` has no side effects, and its proposal depends only on the seed and on the scores told so far. A strategy that is
told the trials of a log again therefore continues as if it had not been interrupted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np

from ...mask import LayerMask
from ..plan import Acquisition
from .objective import Objective, Score
from .space import Space
from .surrogate import Doubles

_FEWEST = 5  # trials before the first fit
_OBSERVED = 120  # trials in a fit: half of them the best, half the latest
_CANDIDATES = 500  # of each kind
_KAPPA = 1.96  # standard deviations of the confidence bound

Worth: TypeAlias = Callable[[LayerMask, Score], float]  # higher is better, e.g. expected tokens per second


class MaskProposer(Protocol):
    """Proposes masks of a space."""

    name: str

    @property
    def quick(self) -> bool:
        """Whether a quick score suffices for the next mask, because it is only compared with quick scores."""
        ...

    def ask(self) -> LayerMask | None:
        """Return the mask to try next; None if no mask is left."""
        ...

    def tell(self, mask: LayerMask, score: Score | None) -> None:
        """Record the score of the mask that `ask` returned; None if llama.cpp rejected the mask."""
        ...


class Random:
    """Random masks, as the control of an experiment."""

    name = "random"
    quick = False

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        self._space, self._seed = space, seed
        self._known: set[LayerMask] = set()
        self._told = 0

    def ask(self) -> LayerMask | None:
        return self._space.draw_new(np.random.default_rng([self._seed, self._told]), self._known)

    def tell(self, mask: LayerMask, score: Score | None) -> None:
        self._known.add(mask)
        self._told += 1


class Paper:
    """DIMR as VIA-SD describes it: random masks, and every θ-th from Bayesian optimisation (arXiv 2606.12243).

    A Gaussian process (scikit-optimize) over the vectors of skipped sublayers is fitted to at most 120 trials, so that
    a proposal takes half a second however long the search lasts. Among random masks and neighbours of the best ones, it
    proposes the mask with the largest expected improvement, or, with acquisition `gp-ucb`, with the lowest confidence
    bound of the loss, which is GP-UCB (Srinivas et al., 2010) for a minimum. The search minimises the loss if the
    number of skipped sublayers is fixed, and otherwise the negative worth, because the least loss would always skip the
    fewest.
    """

    name = "paper"
    quick = False

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        objective: Objective = "relu",
        worth: Worth,
        theta: int = 5,
        acquisition: Acquisition = "ei",
    ) -> None:
        if theta < 1:
            raise ValueError(f"theta is {theta}; every theta-th proposal is Bayesian, so it must be at least 1")
        self._acquisition = acquisition
        self._space, self._seed, self._objective, self._worth, self._theta = space, seed, objective, worth, theta
        self._known: set[LayerMask] = set()
        self._trials: list[tuple[LayerMask, float]] = []
        self._told = 0

    def ask(self) -> LayerMask | None:
        rng = np.random.default_rng([self._seed, self._told])
        if self._told % self._theta == self._theta - 1 and len(self._trials) >= _FEWEST:
            proposed = self._improve(rng)
            if proposed is not None:
                return proposed
        return self._space.draw_new(rng, self._known)

    def tell(self, mask: LayerMask, score: Score | None) -> None:
        self._told += 1
        self._known.add(mask)
        if score is not None:
            fixed = self._space.least == self._space.most
            loss = score.loss(self._objective) if fixed else -self._worth(mask, score)
            self._trials.append((mask, loss))

    def _improve(self, rng: np.random.Generator) -> LayerMask | None:
        """Return the best candidate by the acquisition function; None if no candidate is new."""
        best = sorted(self._trials, key=lambda trial: trial[1])
        observed = dict([*best[: _OBSERVED // 2], *self._trials[-(_OBSERVED // 2) :]])
        candidates = [self._space.draw(rng) for _ in range(_CANDIDATES)]
        candidates += [self._neighbour(best[int(i)][0], rng) for i in rng.integers(0, min(8, len(best)), _CANDIDATES)]
        candidates = [mask for mask in dict.fromkeys(candidates) if mask not in self._known]
        if not candidates:
            return None
        losses = np.array(list(observed.values()))
        gains = _gains(self._space.bits(list(observed)), losses, self._space.bits(candidates), self._acquisition)
        return candidates[int(gains.argmax())]

    def _neighbour(self, mask: LayerMask, rng: np.random.Generator) -> LayerMask:
        """Return the mask with one to four sublayers changed, and then with a number of them that the space allows."""
        space = self._space
        chosen = space.sublayers(mask)
        allowed = space.skippable
        chosen ^= set(rng.choice(allowed, min(int(rng.integers(1, 5)), len(allowed)), replace=False).tolist())
        while len(chosen) > space.most:
            chosen.remove(int(rng.choice(sorted(chosen))))
        while len(chosen) < space.least:
            chosen.add(int(rng.choice(sorted(set(allowed) - chosen))))
        return space.mask(chosen)


def _gains(bits: Doubles, losses: Doubles, candidates: Doubles, acquisition: Acquisition) -> Doubles:
    """Return the acquisition function of each candidate, higher is better, `[len(candidates)]`."""
    from skopt.acquisition import gaussian_ei, gaussian_lcb  # takes a second to import
    from skopt.learning import GaussianProcessRegressor
    from skopt.learning.gaussian_process.kernels import ConstantKernel, Matern
    from threadpoolctl import threadpool_limits  # scikit-learn's own dependency

    scale = np.sqrt(bits.shape[1])
    kernel = ConstantKernel(1.0, (0.01, 1e3)) * Matern(scale / 2, (0.05 * scale, 10 * scale), nu=2.5)
    process = GaussianProcessRegressor(kernel, noise="gaussian", normalize_y=True, random_state=0)
    # threads of BLAS cost more than they gain on matrices of this size, and everything where other programs run
    with warnings.catch_warnings(), threadpool_limits(1, user_api="blas"):
        warnings.simplefilter("ignore")  # a hyperparameter at its bound is no fault here
        process.fit(bits, losses)
        gains: Doubles
        if acquisition == "gp-ucb":
            gains = -gaussian_lcb(candidates, process, kappa=_KAPPA)
        else:
            gains = gaussian_ei(candidates, process, y_opt=losses.min())
    return gains
