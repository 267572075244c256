"""How the target distribution's token is chosen from a row of logits; pure, seeded."""

from __future__ import annotations

import numpy as np

from .arrays import Floats


class Chooser:
    """argmax at temperature 0, else a sample of softmax(logits / temperature).

    Every call at a temperature draws exactly one number, so that lossless modes, which call it once for every token
    that they emit, give the text that plain decoding gives with the same seed.
    """

    def __init__(self, temperature: float = 0.0, seed: int | None = None) -> None:
        """`seed` None is a fresh random one. ValueError for a negative or infinite temperature, or a negative seed."""
        if not 0 <= temperature < float("inf"):
            raise ValueError(f"temperature is {temperature}; it must be 0 (greedy) or a positive number")
        if seed is not None and seed < 0:
            raise ValueError(f"seed is {seed}; it must be 0 or larger")
        self.temperature = temperature
        self._random = np.random.default_rng(seed)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def __call__(self, logits: Floats) -> int:
        """The token for one row of logits, `[n_vocab]`."""
        if self.greedy:
            return int(logits.argmax())
        scaled = (logits - logits.max()).astype(np.float64) / self.temperature
        cumulative = np.exp(scaled).cumsum()
        return int(np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right"))
