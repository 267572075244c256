"""A Bayesian linear model of the logarithm of a mask's loss, with which the guided search weighs sublayers.

log loss = b0 + b1 · log(Σ single losses) + b2 · share skipped + Σ a_i over the skipped sublayers i. If sublayers did
not interact, b1 would be 1 and all other coefficients 0; a_i is the deviation of sublayer i among other skipped ones.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

SMALLEST = 1e-6  # smaller losses are replaced by this one
_PRIOR_MEAN = (0.0, 1.0, 0.0)  # of b0, b1, b2
_PRIOR_DEVIATION = (2.0, 0.5, 2.0)
_OWN_DEVIATION = 0.15  # of each a_i
_NOISE = 0.1  # standard deviation of the residual


class Surrogate:
    """The posterior, given the loss of each single sublayer and the losses of trials."""

    def __init__(self, single: Doubles, bits: Doubles, losses: Sequence[float]) -> None:
        """Fit single losses `[size]` (inf if a sublayer must stay) and n trials: `bits` `[n, size]`, `losses` `[n]`."""
        n = len(single)
        self._single = np.maximum(np.where(np.isfinite(single), single, 0.0), SMALLEST)
        self._impossible = ~np.isfinite(single)
        sums = np.maximum(bits @ self._single, SMALLEST)
        features = np.column_stack([np.ones(len(bits)), np.log(sums), bits.mean(axis=1), bits])
        prior = np.array([*_PRIOR_DEVIATION, *[_OWN_DEVIATION] * n]) ** -2
        mean = np.array([*_PRIOR_MEAN, *[0.0] * n])
        precision = features.T @ features / _NOISE**2 + np.diag(prior)
        targets = np.log(np.maximum(np.asarray(losses, float), SMALLEST))
        self._factor = np.linalg.cholesky(precision)
        self._mean = np.linalg.solve(precision, features.T @ targets / _NOISE**2 + prior * mean)

    def weights(self, beside: Collection[int], rng: np.random.Generator | None = None) -> Doubles:
        """Return by how much each sublayer raises the log loss if it is skipped in addition to `beside`, `[size]`.

        The result is the posterior mean, or with `rng` a draw from the posterior (Thompson sampling); inf for a
        sublayer that cannot be skipped.
        """
        b = self._mean
        if rng is not None:
            b = b + np.linalg.solve(self._factor.T, rng.standard_normal(len(b)))
        total = max(float(self._single[list(beside)].sum()), float(self._single.min()))
        weights = b[1] * self._single / total + b[3:]
        return np.where(self._impossible, np.inf, weights)
