"""Random numbers indexed by position and token, so that a text drawn with them does not depend on the drafts.

In a race where each token needs an exponentially distributed time divided by its weight, the winner is distributed as
the weights (the Gumbel-max trick in another form). Two distributions that race with the same times at a position
mostly have the same winner: with total variation d between them, with probability at least (1 - d) / (1 + d) (Daliri
et al., "Coupling without communication and drafter-invariant speculative decoding", 2024).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

# SplitMix64 (Steele et al., 2014): the state advances by a constant, and the output mixes the state's bits
_STEP = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 0))
_MASK = (1 << 64) - 1

Words = npt.NDArray[np.uint64]


class Noise:
    """An unbounded table of independent exponentially distributed times, one for each position and token."""

    def __init__(self, key: int) -> None:
        """Tables with equal keys are equal."""
        self._key = key
        self._words, self._shifted = np.empty((2, 0), np.uint64)  # reused: allocating takes longer than filling
        self._times = np.empty(0)

    def winner(
        self, position: int, weights: npt.NDArray[np.floating], tokens: npt.NDArray[np.int32] | None = None
    ) -> int:
        """Return the index of the winner, given the weights `[n]`, not all 0, of `tokens` (None: 0 to n-1)."""
        times = self._fill(position, len(weights), tokens)
        return int(np.divide(weights, times, out=times).argmax())

    def times(self, position: int, n: int, tokens: npt.NDArray[np.int32] | None = None) -> npt.NDArray[np.float64]:
        """Return the times `[n]` of `tokens` at a position: positive, and infinite with probability 2^-53."""
        return self._fill(position, n, tokens).copy()

    def _fill(self, position: int, n: int, tokens: npt.NDArray[np.int32] | None) -> npt.NDArray[np.float64]:
        if len(self._times) < n:
            self._words, self._shifted = np.empty((2, n), np.uint64)
            self._times = np.empty(n)
        words, shifted, times = self._words[:n], self._shifted[:n], self._times[:n]
        start = np.uint64(_mixed(self._key + _mixed(position + 1)))
        np.add(_steps(n) if tokens is None else tokens.astype(np.uint64) * np.uint64(_STEP), start, out=words)
        for shift, factor in _ROUNDS:
            np.right_shift(words, np.uint64(shift), out=shifted)
            np.bitwise_xor(words, shifted, out=words)
            if factor:
                np.multiply(words, np.uint64(factor), out=words)
        np.right_shift(words, np.uint64(11), out=words)
        np.multiply(words, 2.0**-53, out=times)  # uniform, from 0 to 1 - 2^-53
        with np.errstate(divide="ignore"):
            np.log(times, out=times)
        return np.negative(times, out=times)


@lru_cache(maxsize=4)
def _steps(n: int) -> Words:
    """Return the state's offset at each of the first n tokens, `[n]`."""
    return np.arange(n, dtype=np.uint64) * np.uint64(_STEP)


def _mixed(word: int) -> int:
    """Return one output of SplitMix64."""
    word = (word * _STEP) & _MASK
    for shift, factor in _ROUNDS:
        word ^= word >> shift
        word = (word * factor) & _MASK if factor else word
    return word
