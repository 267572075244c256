"""Seeds of a `Llama` and of its calls."""

from __future__ import annotations

import random

from .arguments import read_whole

RANDOM_SEED = 0xFFFFFFFF  # LLAMA_DEFAULT_SEED; -1 in 32 bits


def read_seed(seed: int | None) -> int | None:
    """Reduce a seed to 32 bits; None, -1 and `RANDOM_SEED` ask for a random seed and become None."""
    number = read_whole("seed", seed)
    if number is None or number & RANDOM_SEED == RANDOM_SEED:
        return None
    return number & RANDOM_SEED


class SeedSource:
    """Gives every call its seed, so that a seeded object reproduces the sequence of all its calls."""

    def __init__(self, seed: int | None = None) -> None:
        """Start the sequence of call seeds at `seed` (32 bits); None makes every call random."""
        self.set(seed)

    def set(self, seed: int | None) -> None:
        """Restart the sequence of call seeds at `seed` (32 bits); None makes every call random."""
        number = read_seed(seed)
        self.seed = RANDOM_SEED if number is None else number
        self._random = None if number is None else random.Random(number)

    def for_call(self, seed: int | None) -> int | None:
        """Return the seed of one call: `seed` if there is one, else the next of the sequence; None is random."""
        if seed is not None:
            return read_seed(seed)
        return None if self._random is None else self._random.getrandbits(32)
