"""A llama.cpp batch whose arrays are NumPy views."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ..arrays import Floats
from ..binding import llama

Inputs = npt.NDArray[np.int32] | Floats  # token ids [n], or hidden states [n, n_embd] in their place


class Batch:
    """A `llama_batch` of up to `capacity` tokens, or of hidden states of width `n_embd` if that is not 0.

    Every entry belongs to one sequence, at first sequence 0.
    """

    def __init__(self, capacity: int, n_embd: int = 0) -> None:
        self.native = llama.llama_batch_init(capacity, n_embd, 1)
        inputs = self.native.embd if n_embd else self.native.token
        self._inputs = np.ctypeslib.as_array(inputs, shape=(capacity, n_embd) if n_embd else (capacity,))
        self._positions = np.ctypeslib.as_array(self.native.pos, shape=(capacity,))
        self._wants_logits = np.ctypeslib.as_array(self.native.logits, shape=(capacity,))
        self._is_free = False
        for i in range(capacity):
            self.native.n_seq_id[i] = 1
            self.native.seq_id[i][0] = 0

    def fill(self, inputs: Inputs, positions: npt.NDArray[np.int64], rows: int) -> None:
        """Set the `n` inputs and their positions `[n]`, and ask for the logits of the last `rows` of them."""
        n = len(inputs)
        self.native.n_tokens = n
        self._inputs[:n] = inputs
        self._positions[:n] = positions
        self._wants_logits[: n - rows] = 0
        self._wants_logits[n - rows : n] = 1

    def assign(self, sequences: Iterable[int]) -> None:
        """Set the sequence of each entry, from the first one on."""
        for i, sequence in enumerate(sequences):
            self.native.seq_id[i][0] = sequence

    def free(self) -> None:
        """Free the arrays; a second call does nothing."""
        if not self._is_free:
            llama.llama_batch_free(self.native)
            self._is_free = True
