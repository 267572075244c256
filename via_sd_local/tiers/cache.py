"""A llama.cpp context together with the tokens whose keys and values its cache holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from ..arrays import Floats
from ..errors import NativeError
from ..interrupts import interrupted, interrupts_after

if TYPE_CHECKING:
    from ..runtime.context import Context
    from ..runtime.model import Model

# kind of pass ("prefill", "draft", "slim", "full" or "resume"), tokens, seconds in llama_decode
Recorder: TypeAlias = Callable[[str, int, float], None]


def ignore(_kind: str, _tokens: int, _seconds: float) -> None:
    """Record nothing."""


def common_prefix(a: Sequence[int], b: Sequence[int], known: int = 0) -> int:
    """Return the length of the longest common prefix of two token lists.

    The first `known` tokens are taken to be equal without a look. The search is a bisection over slices, so that the
    comparisons run in C.
    """
    high = min(len(a), len(b))
    low = min(known, high)
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def timed(kind: str, tokens: int, recorder: Recorder, decode: Callable[[], Floats]) -> Floats:
    """Run one pass and report its kind, its number of tokens and its seconds to the recorder."""
    started = time.perf_counter()
    logits = decode()
    recorder(kind, tokens, time.perf_counter() - started)
    return logits


def open_context(model: Model, *, n_ctx: int, n_threads: int | None) -> Context:
    """Open a llama.cpp context of the model; this is what needs the compiled library."""
    from ..runtime.context import Context

    return Context(model, n_ctx=n_ctx, n_threads=n_threads)


class TokenCache:
    """A context and the tokens in its KV cache.

    A pass that fails leaves the cache marked as broken until `reset`. Ctrl-C ends a pass over a long text between
    batches, or inside a batch where llama.cpp can stop; complete batches stay in the cache.
    """

    def __init__(
        self, model: Model, *, n_ctx: int, n_threads: int | None = None, context: Context | None = None
    ) -> None:
        """Open a context of `n_ctx` positions, or take over `context`, which must be empty.

        Raises NativeError if llama.cpp cannot allocate it.
        """
        self.model = model
        self.context = context or open_context(model, n_ctx=n_ctx, n_threads=n_threads)
        self.cells: list[int] = []
        self._broken = False
        try:
            self.can_rewind = self._probe_rewind()
        except BaseException:
            self.close()
            raise

    def _probe_rewind(self) -> bool:
        """Try to remove the last position alone, which recurrent and hybrid memories cannot do."""
        self.context.decode([0, 0], 0, 0)
        possible = self.context.remove(1)
        self.context.clear()
        return possible

    def close(self) -> None:
        """Free the context."""
        self.context.close()

    @property
    def is_broken(self) -> bool:
        """Whether a pass failed, so that the content of the cache is unknown until `reset`."""
        return self._broken

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Surround a change of the cache: an exception inside marks the cache as broken.

        A pass that Ctrl-C ends leaves nothing behind, and the cache stays usable.
        """
        if self._broken:
            raise NativeError(f"{self.model.path.name}: the KV cache is unknown after a pass that failed")
        if interrupted():
            raise KeyboardInterrupt
        with interrupts_after():
            self._broken = True
            try:
                yield
            except KeyboardInterrupt:
                self._broken = not self.context.remove(len(self.cells))
                raise
            self._broken = False

    def _remove(self, start: int, recorder: Recorder) -> None:
        """Remove the positions from `start` on; a memory that cannot do so is emptied and filled again up to there."""
        if start < len(self.cells) and not self.context.remove(start):
            self._refill(start, recorder)

    def _refill(self, n: int, recorder: Recorder) -> None:
        """Empty the cache and compute its first `n` positions again; the cache is broken until the caller says so."""
        kept = self.cells[:n]
        self.reset()
        self._broken = True
        if kept:
            timed("prefill", n, recorder, lambda: self.context.decode(kept, 0, 0))
        self.cells += kept

    def refill(self, recorder: Recorder = ignore) -> None:
        """Compute everything that the cache should hold again."""
        with self._changing():
            self._refill(len(self.cells), recorder)

    def rewind(self, n: int, recorder: Recorder = ignore) -> None:
        """Remove every position from `n` on."""
        if n < len(self.cells):
            with self._changing():
                self._remove(n, recorder)
                del self.cells[n:]

    def reset(self) -> None:
        """Empty the cache."""
        self.context.clear()
        self.cells.clear()
        self._broken = False

    def append(self, tokens: Sequence[int], kind: str = "draft", recorder: Recorder = ignore) -> Floats:
        """Decode tokens after those in the cache, batch by batch.

        Returns the logits of the last token, `[n_vocab]`, which are valid until the next pass.
        """
        n_batch = self.context.n_batch
        for begin in range(0, len(tokens), n_batch):
            batch = tokens[begin : begin + n_batch]
            rows = int(begin + n_batch >= len(tokens))
            with self._changing():
                logits = self._decode(batch, rows, kind, recorder)
                self.cells += batch
        row: Floats = logits[0]
        return row

    def _decode(self, tokens: Sequence[int], rows: int, kind: str, recorder: Recorder) -> Floats:
        """Decode tokens behind the cells, which the caller extends; returns the last `rows` rows of logits."""
        return timed(kind, len(tokens), recorder, lambda: self.context.decode(tokens, len(self.cells), rows))

    def reuse(self, tokens: Sequence[int], limit: int, known: int = 0, recorder: Recorder = ignore) -> int:
        """Keep the longest common prefix of the cache and `tokens`, at most `limit` positions, and return its length.

        The first `known` tokens are taken to be those of the cache without a look.
        """
        n = min(common_prefix(self.cells, tokens, known), limit)
        if self._broken or (n < len(self.cells) and (n == 0 or not self.can_rewind)):
            self.reset()
            return 0
        self.rewind(n, recorder)
        return n
