"""Logits of evaluated positions: all of them where they are asked for, else the last one's."""

from __future__ import annotations

import numpy as np

from ..arrays import Floats


class LogitRows:
    """A growing array `[positions, n_vocab]`; `valid` is how many positions, from the first on, have a row in it."""

    def __init__(self, n_vocab: int, *, keeps_all: bool) -> None:
        self.keeps_all = keeps_all
        self.valid = 0
        self._rows: Floats = np.zeros((0 if keeps_all else 1, n_vocab), np.float32)

    def put(self, start: int, logits: Floats) -> None:
        """Rows of the positions from `start` on; rows of later positions are forgotten."""
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
        """Only the first n positions are still what they were."""
        self.valid = min(self.valid, n)

    def array(self, n: int) -> Floats:
        """At least `n` rows if all are kept (zeros where there is none), else one."""
        if self.keeps_all and n > len(self._rows):
            self.put(n - 1, np.zeros((1, self._rows.shape[1]), np.float32))
        return self._rows
