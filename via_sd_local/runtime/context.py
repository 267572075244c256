"""One llama.cpp context: batches in, rows of logits out, every result checked."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..arrays import Floats
from ..binding import (
    allocate,
    get_layer_input,
    llama,
    never_stop,
    set_layer_input,
    set_layer_skip,
    stop_if_not_empty,
)
from ..errors import NativeError
from ..interrupts import can_stop_inside, interrupted, stop_flag, stopping_inside
from ..native_log import take_errors
from .batch import Batch, Inputs
from .limits import default_threads
from .model import Model
from .placement import CACHE_TYPES

MAX_N_CTX = 1 << 24
MAX_THREADS = 512  # GGML_MAX_N_THREADS: llama.cpp aborts the process beyond it
N_BATCH = 512  # tokens per llama_decode; longer inputs are split, and Ctrl-C is noticed in between
_ABORTED = 2  # llama_decode's status after the abort callback returned true
_MIN_POLLED = 64  # tokens of a batch that stops at Ctrl-C; shorter ones are over soon


class Context:
    """A KV cache of `n_ctx` positions over a model. The caller keeps track of which tokens are in it."""

    def __init__(self, model: Model, *, n_ctx: int, n_threads: int | None = None, sequences: int = 1) -> None:
        """Allocate the KV cache and the compute buffers; `n_threads` None is `default_threads()`.

        Several `sequences` share the `n_ctx` positions; the methods of this class use sequence 0 only. Raises
        ValueError for impossible sizes, NativeError if llama.cpp cannot allocate or an RPC server is lost.
        """
        if not 2 <= n_ctx <= MAX_N_CTX:
            raise ValueError(f"n_ctx is {n_ctx}; a context needs at least 2 positions, and has at most {MAX_N_CTX}")
        if n_threads is not None and not 1 <= n_threads <= MAX_THREADS:
            raise ValueError(f"threads is {n_threads}; it must be from 1 to {MAX_THREADS}")
        threads = n_threads or default_threads()
        params = _params(model, n_ctx, threads, sequences)
        take_errors()
        handle = allocate(
            lambda: llama.llama_init_from_model(model.handle, params), lambda created: llama.llama_free(created)
        )
        try:
            model.check_servers()
        except NativeError:
            if handle:
                llama.llama_free(handle)
            raise
        if not handle:
            raise NativeError(f"no context of {n_ctx} tokens for {model.path}: {_last_error()}")
        self._set_up(model, handle, n_ctx, int(params.n_batch), threads, owned=True)

    @classmethod
    def borrow(cls, model: Model, handle: int) -> Context:
        """Wrap a context that other code has allocated, and will free after `close`; sizes are llama.cpp's own.

        `handle` is llama.cpp's context pointer.
        """
        n_ctx, n_batch = int(llama.llama_n_ctx(handle)), int(llama.llama_n_batch(handle))
        context = cls.__new__(cls)
        context._set_up(model, handle, n_ctx, n_batch, int(llama.llama_n_threads(handle)), owned=False)
        return context

    def _set_up(self, model: Model, handle: int, n_ctx: int, n_batch: int, n_threads: int, *, owned: bool) -> None:
        self.model, self.n_ctx, self.n_batch, self.n_threads = model, n_ctx, n_batch, n_threads
        self._handle: int | None = handle
        self._owned = owned
        self._n_vocab = model.n_vocab
        self._row_types: dict[int, Any] = {}  # ctypes array types of so many rows of logits
        self._stops_inside = False  # whether the abort callback that stops at Ctrl-C is installed
        self._tokens = Batch(n_batch)
        self._embeddings: Batch | None = None
        self._kept_layer: int | None = None
        model.users += 1

    @property
    def handle(self) -> int:
        """llama.cpp's context pointer; ValueError after `close`."""
        if self._handle is None:
            raise ValueError("the context has been closed")
        return self._handle

    def close(self) -> None:
        """Free the batches, and the cache and the compute buffers unless they are borrowed."""
        if self._handle is None:
            return
        if self._owned:
            llama.llama_free(self._handle)
        self._handle = None
        self.model.users -= 1
        for batch in filter(None, (self._tokens, self._embeddings)):
            batch.free()

    #
    # decoding
    #

    def decode(self, tokens: Sequence[int], start: int, rows: int) -> Floats:
        """Decode tokens at positions `start`…; return the logits of the last `rows` of them, `[rows, n_vocab]`.

        The array is valid until the next call. Raises NativeError, after which the content of the cache is unknown.
        Inside `interrupts_after`, Ctrl-C raises KeyboardInterrupt early; whole batches of the tokens are then in the
        cache.
        """
        return self._decode(self._tokens, np.asarray(tokens, dtype=np.int32), start, rows)

    def decode_embeddings(self, embeddings: Floats, start: int, rows: int) -> Floats:
        """Decode hidden states `[n, n_embd]` in place of token embeddings; otherwise as `decode`."""
        if self._embeddings is None:
            self._embeddings = Batch(self.n_batch, self.model.n_embd)
        return self._decode(self._embeddings, embeddings, start, rows)

    def _decode(self, batch: Batch, inputs: Inputs, start: int, rows: int) -> Floats:
        n = len(inputs)
        assert 0 < n <= self.n_ctx - start
        assert 0 <= rows <= n
        if n <= self.n_batch:
            return self._decode_chunk(batch, inputs, start, rows)
        collected: list[Floats] = []
        for begin in range(0, n, self.n_batch):
            chunk = inputs[begin : begin + self.n_batch]
            chunk_rows = min(len(chunk), max(0, begin + len(chunk) - (n - rows)))
            logits = self._decode_chunk(batch, chunk, start + begin, chunk_rows)
            if chunk_rows:
                collected.append(logits.copy())
            if interrupted():
                raise KeyboardInterrupt
        return np.concatenate(collected) if collected else np.empty((0, self._n_vocab), np.float32)

    def _decode_chunk(self, batch: Batch, inputs: Inputs, start: int, rows: int) -> Floats:
        _ = self.handle  # raises after close, which frees the batch
        batch.fill(inputs, np.arange(start, start + len(inputs)), rows)
        return self.decode_batch(batch, start, rows)

    def decode_batch(self, batch: Batch, start: int, rows: int) -> Floats:
        """Decode a filled batch that asks for `rows` rows of logits; return them, `[rows, n_vocab]`.

        The array is valid until the next call. `start` is the first position, for the text of errors. Raises
        NativeError, after which the content of the cache is unknown.
        """
        handle, n_tokens = self.handle, batch.native.n_tokens
        status = self._run(handle, batch, stops_inside=n_tokens >= _MIN_POLLED and can_stop_inside())
        if status == _ABORTED:  # llama.cpp has removed the batch from the cache
            raise KeyboardInterrupt
        if status != 0:
            self.model.check_servers()
            reason = "the KV cache has no free slot" if status == 1 else _last_error()
            raise NativeError(
                f"llama_decode failed on {n_tokens} tokens at position {start} (status {status}): {reason}"
            )
        if rows == 0:
            if self.model.servers:
                llama.llama_synchronize(handle)
                self.model.check_servers()
            return np.empty((0, self._n_vocab), np.float32)
        pointer = llama.llama_get_logits(handle)
        self.model.check_servers()  # the logits of a lost server are zeros
        logits = self._view(pointer, rows)
        if np.isnan(logits[-1]).any():
            raise NativeError(f"{self.model.path.name} computes NaN at position {start}: the file may be damaged")
        return logits

    def _view(self, pointer: Any, rows: int) -> Floats:
        """Return logits in llama.cpp's memory as an array `[rows, n_vocab]`.

        `numpy.ctypeslib.as_array` creates a ctypes type at every call, which takes longer than all else here.
        """
        kind = self._row_types.get(rows)
        if kind is None:
            kind = self._row_types[rows] = ctypes.c_float * (rows * self._n_vocab)
        buffer = kind.from_address(ctypes.addressof(pointer.contents))
        logits: Floats = np.frombuffer(memoryview(buffer), np.float32).reshape(rows, self._n_vocab)
        return logits

    def _run(self, handle: int, batch: Batch, *, stops_inside: bool) -> int:
        """Run llama_decode and return its status; `_ABORTED` only if a SIGINT is held."""
        if stops_inside != self._stops_inside:
            if stops_inside:
                llama.llama_set_abort_callback(handle, stop_if_not_empty, ctypes.addressof(stop_flag()))
            else:
                llama.llama_set_abort_callback(handle, never_stop, None)
            self._stops_inside = stops_inside
        while stops_inside:
            with stopping_inside():
                status = int(llama.llama_decode(handle, batch.native))
            if status != _ABORTED or interrupted():
                return status
        return int(llama.llama_decode(handle, batch.native))

    #
    # the cache
    #

    def remove(self, start: int) -> bool:
        """Remove positions from `start` on; False, with the cache unchanged, if this kind of memory cannot."""
        return bool(llama.llama_memory_seq_rm(llama.llama_get_memory(self.handle), 0, start, -1))

    def clear(self) -> None:
        """Remove all positions of all sequences."""
        llama.llama_memory_clear(llama.llama_get_memory(self.handle), True)

    #
    # layer masks and layer inputs, which the patch adds
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
        """Return a copy of the kept hidden states of the last decode's `n` tokens, `[n, n_embd]`.

        None if no layer is kept, if the decode took several batches, or if the architecture does not record layer
        inputs.
        """
        if self._kept_layer is None or n > self.n_batch:
            return None
        pointer = get_layer_input(self.handle, self._kept_layer)
        return np.ctypeslib.as_array(pointer, shape=(n, self.model.n_embd)).copy() if pointer else None


def _params(model: Model, n_ctx: int, threads: int, sequences: int) -> llama.llama_context_params:
    params: llama.llama_context_params = llama.llama_context_default_params()
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
    return params


def _last_error() -> str:
    errors = take_errors()
    return errors[-1] if errors else "llama.cpp gave no reason"
