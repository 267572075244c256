"""One llama.cpp context with one sequence: batches in, rows of logits out, every result checked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from ..arrays import Floats
from ..binding import (
    allocate,
    get_layer_input,
    llama,
    never_stop,
    set_layer_input,
    set_layer_skip,
    stop_if_interrupted,
    take_errors,
)
from ..errors import NativeError
from ..interrupts import can_stop_inside, interrupted
from .model import Model
from .placement import CACHE_TYPES

MAX_N_CTX = 1 << 24
MAX_THREADS = 512  # GGML_MAX_N_THREADS: beyond it llama.cpp aborts the process
N_BATCH = 512  # tokens a llama_decode call; longer inputs go in several, between which Ctrl-C is heard
_ABORTED = 2  # llama_decode's status
_LONG = 64  # tokens of a batch inside which it is heard, too: asking after every node costs about a millisecond


def default_threads() -> int:
    """The cores that this process may use; half of them from 8 on, where they tend to be hyperthreads or slow ones."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return available if available < 8 else available // 2


class Context:
    """A KV cache of `n_ctx` positions over a model; the caller keeps track of what is in it."""

    def __init__(self, model: Model, *, n_ctx: int, n_threads: int | None = None, sequences: int = 1) -> None:
        """Allocate; ValueError for impossible sizes, NativeError when llama.cpp cannot allocate.

        More than one sequence share the positions; the methods here use the first one only.
        """
        if not 2 <= n_ctx <= MAX_N_CTX:
            raise ValueError(f"n_ctx is {n_ctx}; a context needs at least 2 positions, and has at most {MAX_N_CTX}")
        if n_threads is not None and not 1 <= n_threads <= MAX_THREADS:
            raise ValueError(f"threads is {n_threads}; it must be from 1 to {MAX_THREADS}")
        threads = n_threads or default_threads()
        params = llama.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = params.n_ubatch = min(N_BATCH, n_ctx)
        params.n_threads = params.n_threads_batch = threads
        placement = model.placement
        params.flash_attn_type = placement.flash_attn_type(model.n_devices)
        params.type_k, params.type_v = CACHE_TYPES[placement.type_k], CACHE_TYPES[placement.type_v]
        params.offload_kqv = placement.offload_kqv
        if sequences > 1:
            params.n_seq_max, params.kv_unified = sequences, True
        params.swa_full = True  # a sliding-window cache of full size can be rewound beyond the window
        params.no_perf = True
        take_errors()
        handle = allocate(
            lambda: llama.llama_init_from_model(model.handle, params), lambda made: llama.llama_free(made)
        )
        try:
            model.check_servers()
        except NativeError:
            if handle:
                llama.llama_free(handle)
            raise
        if not handle:
            raise NativeError(f"no context of {n_ctx} tokens for {model.path}: {_last_error()}")
        self._take(model, handle, n_ctx, int(params.n_batch), threads)

    def _take(self, model: Model, handle: int, n_ctx: int, n_batch: int, n_threads: int) -> None:
        self.model, self.n_ctx, self.n_batch, self.n_threads = model, n_ctx, n_batch, n_threads
        self._handle: int | None = handle
        model.users += 1
        self._stops = False  # whether a batch ends early at Ctrl-C
        self._n_vocab = model.n_vocab
        self._tokens = _Batch(self.n_batch, 0)
        self._embeddings: _Batch | None = None
        self._kept_layer: int | None = None

    @property
    def handle(self) -> int:
        """llama.cpp's context pointer."""
        if self._handle is None:
            raise ValueError("the context has been closed")
        return self._handle

    def close(self) -> None:
        """Free the cache and the buffers."""
        if self._handle is not None:
            llama.llama_free(self._handle)
            self._let_go()

    def _let_go(self) -> None:
        self._handle = None
        self.model.users -= 1
        for batch in filter(None, (self._tokens, self._embeddings)):
            batch.free()

    #
    # decoding
    #

    def decode(self, tokens: Sequence[int], start: int, rows: int) -> Floats:
        """Decode tokens at positions `start`…; returns the logits of the last `rows` of them, `[rows, n_vocab]`.

        The array is valid until the next call. Raises NativeError; the cache's content is then unknown. Inside
        `interrupts_after` it raises KeyboardInterrupt early; of these tokens, those of whole batches are in the cache.
        """
        return self._decode(self._tokens, np.asarray(tokens, dtype=np.int32), start, rows)

    def decode_embeddings(self, embeddings: Floats, start: int, rows: int) -> Floats:
        """The same for hidden states `[n, n_embd]` in place of token embeddings."""
        if self._embeddings is None:
            self._embeddings = _Batch(self.n_batch, self.model.n_embd)
        return self._decode(self._embeddings, embeddings, start, rows)

    def _decode(self, batch: _Batch, inputs: npt.NDArray[np.int32] | Floats, start: int, rows: int) -> Floats:
        n = len(inputs)
        assert 0 < n <= self.n_ctx - start
        assert 0 <= rows <= n
        if n <= self.n_batch:
            return self._decode_chunk(batch, inputs, start, rows)
        collected: list[Floats] = []
        for begin in range(0, n, self.n_batch):
            chunk = inputs[begin : begin + self.n_batch]
            wanted = min(len(chunk), max(0, begin + len(chunk) - (n - rows)))
            logits = self._decode_chunk(batch, chunk, start + begin, wanted)
            if wanted:
                collected.append(logits.copy())
            if interrupted():
                raise KeyboardInterrupt
        return np.concatenate(collected) if collected else np.empty((0, self._n_vocab), np.float32)

    def _decode_chunk(self, batch: _Batch, inputs: npt.NDArray[np.int32] | Floats, start: int, rows: int) -> Floats:
        _ = self.handle  # first of all: a closed context's batch is gone, too
        batch.fill(inputs, start, rows)
        return self._run(batch.native, start, rows)

    def _run(self, native: llama.llama_batch, start: int, rows: int) -> Floats:
        """Decode a batch that begins at position `start` and wants so many rows."""
        handle = self.handle
        stops = native.n_tokens >= _LONG and can_stop_inside()
        if stops != self._stops:
            llama.llama_set_abort_callback(handle, stop_if_interrupted if stops else never_stop, None)
            self._stops = stops
        status = llama.llama_decode(handle, native)
        if status == _ABORTED:  # the batch has left the cache again
            raise KeyboardInterrupt
        if status != 0:
            self.model.check_servers()
            why = "the KV cache has no free slot" if status == 1 else _last_error()
            raise NativeError(
                f"llama_decode failed on {native.n_tokens} tokens at position {start} (status {status}): {why}"
            )
        if rows == 0:
            if self.model.servers:
                llama.llama_synchronize(handle)
                self.model.check_servers()
            return np.empty((0, self._n_vocab), np.float32)
        pointer = llama.llama_get_logits(handle)
        self.model.check_servers()  # what a lost server should have sent is zero
        logits: Floats = np.ctypeslib.as_array(pointer, shape=(rows, self._n_vocab))
        if np.isnan(logits[-1]).any():
            raise NativeError(f"{self.model.path.name} computes NaN at position {start}: the file may be damaged")
        return logits

    #
    # the cache
    #

    def remove(self, start: int) -> bool:
        """Forget positions from `start` on; False if this kind of memory cannot (the cache is then as before)."""
        return bool(llama.llama_memory_seq_rm(llama.llama_get_memory(self.handle), 0, start, -1))

    def clear(self) -> None:
        """Forget everything."""
        llama.llama_memory_clear(llama.llama_get_memory(self.handle), True)

    #
    # what the patch adds
    #

    def set_mask(self, mask: bytes) -> None:
        """Skip sublayers from the next decode on (`LayerMask.to_bytes`); `b""` is the full model.

        Raises ValueError with llama.cpp's reason if it refuses the mask; the mask in force then stays.
        """
        reason = set_layer_skip(self.handle, mask, len(mask))
        if reason is not None:
            raise ValueError(f"llama.cpp refuses this mask for {self.model.path.name}: {reason.decode()}")

    @contextmanager
    def masked(self, mask: bytes) -> Iterator[None]:
        """Decode under `mask` inside the `with` block, and with the full model after it, however the block ends.

        Raises ValueError with llama.cpp's reason if it refuses the mask.
        """
        try:
            self.set_mask(mask)
            yield
        finally:
            self.set_mask(b"")

    def check_mask(self, mask: bytes) -> None:
        """Raise ValueError with llama.cpp's reason if it refuses the mask; no mask is in force after."""
        with self.masked(mask):
            pass

    def keep_layer_input(self, layer: int) -> None:
        """Keep the hidden states that enter this layer at every decode from now on."""
        set_layer_input(self.handle, layer, True)
        self._kept_layer = layer

    def layer_input(self, n: int) -> Floats | None:
        """The kept states of the last decode's `n` tokens, `[n, n_embd]`, copied; None if they are not recorded."""
        if self._kept_layer is None or n > self.n_batch:
            return None
        pointer = get_layer_input(self.handle, self._kept_layer)
        return np.ctypeslib.as_array(pointer, shape=(n, self.model.n_embd)).copy() if pointer else None


class _Batch:
    """A llama_batch of one sequence whose arrays are filled through NumPy."""

    def __init__(self, capacity: int, n_embd: int) -> None:
        self.native = llama.llama_batch_init(capacity, n_embd, 1)
        inputs = self.native.embd if n_embd else self.native.token
        self._inputs = np.ctypeslib.as_array(inputs, shape=(capacity, n_embd) if n_embd else (capacity,))
        self._positions = np.ctypeslib.as_array(self.native.pos, shape=(capacity,))
        self._wanted = np.ctypeslib.as_array(self.native.logits, shape=(capacity,))
        for i in range(capacity):
            self.native.n_seq_id[i] = 1
            self.native.seq_id[i][0] = 0

    def fill(self, inputs: npt.NDArray[np.int32] | Floats, start: int, rows: int) -> None:
        n = len(inputs)
        self.native.n_tokens = n
        self._inputs[:n] = inputs
        self._positions[:n] = np.arange(start, start + n)
        self._wanted[: n - rows] = 0
        self._wanted[n - rows : n] = 1

    def free(self) -> None:
        llama.llama_batch_free(self.native)


def _last_error() -> str:
    errors = take_errors()
    return errors[-1] if errors else "llama.cpp gave no reason"
