"""Many blocks of one text in a single batch, each after the full model's K/V of what precedes it.

Sequence 0 holds the text's K/V. A block that begins at position i is a sequence of its own which shares the first i
cells with sequence 0, so blocks do not see each other, and a batch of all of them costs far less than one of each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ...arrays import Floats
from ...binding import get_layer_input, llama, set_layer_input
from ...errors import NativeError
from ...runtime.batch import Batch, Inputs
from ...runtime.context import N_BATCH, Context
from ...runtime.model import Model

State: TypeAlias = npt.NDArray[np.uint8]

MOST_BLOCKS = 128  # in one batch; llama.cpp allows 256 sequences


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Consecutive inputs of a text: `start` is the position of the first one, `rows` which inputs they are."""

    start: int
    rows: slice

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """Positions of the block's inputs in the text, `[len(self)]`."""
        return np.arange(self.start, self.start + len(self))


def cut(start: int, n: int, block: int) -> list[list[TextBlock]]:
    """`n` inputs from position `start` on, in blocks, grouped into batches that one decode takes."""
    blocks = [TextBlock(start + begin, slice(begin, min(n, begin + block))) for begin in range(0, n, block)]
    most = max(1, min(MOST_BLOCKS, N_BATCH // block))
    return [blocks[begin : begin + most] for begin in range(0, len(blocks), most)]


class BlockContext(Context):
    """A context for one text and blocks beside it."""

    def __init__(self, model: Model, *, n_ctx: int, n_threads: int | None, blocks: int) -> None:
        """`n_ctx` counts the text's cells and those of all blocks of a batch."""
        super().__init__(model, n_ctx=n_ctx, n_threads=n_threads, sequences=1 + blocks)
        self._token_batch = Batch(N_BATCH)
        self._embedding_batch: Batch | None = None

    def close(self) -> None:
        super().close()
        for batch in filter(None, (self._token_batch, self._embedding_batch)):
            batch.free()

    def decode_blocks(self, inputs: Inputs, blocks: Sequence[TextBlock]) -> Floats:
        """Decode blocks beside the text in sequence 0, and remove them from the cache.

        `inputs` are tokens `[n]` or hidden states `[n, n_embd]`. Returns the logits of each, `[n, n_vocab]`, which are
        valid until the next call. Raises NativeError, after which `load` restores a valid cache.
        """
        n = len(inputs)
        assert 0 < n <= N_BATCH
        assert n == sum(map(len, blocks))
        memory = llama.llama_get_memory(self.handle)
        if inputs.ndim == 1:
            batch = self._token_batch
        else:
            self._embedding_batch = batch = self._embedding_batch or Batch(N_BATCH, self.model.n_embd)
        batch.fill(inputs, np.concatenate([block.positions for block in blocks]), n)
        batch.assign(sequence for sequence, block in enumerate(blocks, 1) for _ in range(len(block)))
        for sequence, block in enumerate(blocks, 1):
            llama.llama_memory_seq_cp(memory, 0, sequence, 0, block.start)
        try:
            return self.decode_batch(batch, blocks[0].start, n)
        finally:
            sequences = range(1, len(blocks) + 1)
            if not all(llama.llama_memory_seq_rm(memory, sequence, -1, -1) for sequence in sequences):
                raise NativeError(f"{self.model.path.name}: the KV cache cannot forget a block")

    def save(self) -> State:
        """Return the K/V of the text, with the cells beyond sliding windows, which llama.cpp's sequence state omits."""
        size = llama.llama_state_get_size(self.handle)
        state = np.empty(size, np.uint8)
        if llama.llama_state_get_data(self.handle, _bytes_of(state), size) != size:
            raise NativeError(f"{self.model.path.name}: llama.cpp cannot save the K/V of a text")
        return state

    def load(self, state: State) -> None:
        """Restore the state that `save` returned."""
        if llama.llama_state_set_data(self.handle, _bytes_of(state), len(state)) != len(state):
            raise NativeError(f"{self.model.path.name}: llama.cpp cannot restore the K/V of a text")

    def record(self, layers: Sequence[int], wanted: bool) -> None:
        """Start or stop recording the hidden states that enter these layers."""
        for layer in layers:
            set_layer_input(self.handle, layer, wanted)

    def recorded(self, layer: int, n: int) -> Floats | None:
        """Return a copy of the layer inputs of the last batch, `[n, n_embd]`; None if the architecture records none."""
        pointer = get_layer_input(self.handle, layer)
        return np.ctypeslib.as_array(pointer, shape=(n, self.model.n_embd)).copy() if pointer else None


def _bytes_of(state: State) -> ctypes.Array[ctypes.c_uint8]:
    pointer: ctypes.Array[ctypes.c_uint8] = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))  # type: ignore[assignment]
    return pointer
