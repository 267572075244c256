"""Logits of evaluated positions: of all positions if requested, else of the last one."""

from __future__ import annotations

import numpy as np

from ..arrays import Floats


class LogitRows:
    """Logits in an array `[positions, n_vocab]` that grows on demand, or `[1, n_vocab]` without `keeps_all`.

    The first `valid` positions have a row; later rows are zeros or out of date.
    """

    def __init__(self, n_vocab: int, *, keeps_all: bool) -> None:
        self.keeps_all = keeps_all
        self.valid = 0
        self._rows: Floats = np.zeros((0 if keeps_all else 1, n_vocab), np.float32)

    def put(self, start: int, logits: Floats) -> None:
        """Store logits `[n, n_vocab]` of the positions from `start` on, and forget those of later positions."""
        if not self.keeps_all:
            self._rows[0] = logits[-1]
            return
        end = start + len(logits)
        if end > len(self._rows):
            grown = np.zeros((max(end, 2 * len(self._rows), 64), self._rows.shape[1]), np.float32)
            grown[: self.valid] = self._rows[: self.valid]
            self._rows = grown
        self._rows[start:end] = logits
        self.valid = end if start <= self.valid else self.valid

    def cut(self, n: int) -> None:
        """Forget the logits of all but the first `n` positions, since the text changed there."""
        self.valid = min(self.valid, n)

    def array(self, n: int) -> Floats:
        """Return the array, with at least `n` rows if all are kept; positions without logits have zeros."""
        if self.keeps_all and n > len(self._rows):
            self.put(n - 1, np.zeros((1, self._rows.shape[1]), np.float32))
        return self._rows
