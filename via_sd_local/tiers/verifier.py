"""The verifier: one context of the large model that serves as full and as slim tier.

Two watermarks describe its cache. Positions below `n_full` were computed by the full model, those from `n_full` up
to `n_kv` by the slim one. A full pass first recomputes the latter, so full logits never depend on slim passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np

from ..arrays import Floats
from ..errors import NativeError
from ..interrupts import interrupted, interrupts_after
from ..mask import LayerMask
from ..runtime.context import Context
from ..runtime.model import Model

# kind ("prefill", "draft", "slim", "full" or "resume"), tokens, seconds in llama_decode
Recorder: TypeAlias = Callable[[str, int, float], None]


def ignore(_kind: str, _tokens: int, _seconds: float) -> None:
    """The recorder of someone who does not count."""


def common_prefix(a: Sequence[int], b: Sequence[int], known: int = 0) -> int:
    """The length of the longest common prefix of two lists (by bisection, so that the comparisons run in C).

    So many as `known` are known to be common, and are not looked at.
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


class TokenCache:
    """A context together with the tokens whose K/V it holds; what fails in a pass makes it start over, empty.

    Ctrl-C ends a pass over a long text between batches, or inside one where llama.cpp can; whole batches stay.
    """

    def __init__(self, model: Model, *, n_ctx: int, n_threads: int | None, context: Context | None = None) -> None:
        self.model = model
        self.context = context or Context(model, n_ctx=n_ctx, n_threads=n_threads)
        self.cells: list[int] = []
        self.recorder: Recorder = ignore
        self._broken = False
        try:
            self.can_rewind = self._probe_rewind()
        except BaseException:
            self.close()
            raise

    def _probe_rewind(self) -> bool:
        """Whether the last position can be forgotten alone; not so in recurrent and hybrid models."""
        self.context.decode([0, 0], 0, 0)
        possible = self.context.remove(1)
        self.context.clear()
        return possible

    def close(self) -> None:
        self.context.close()

    @contextmanager
    def _pass(self) -> Iterator[None]:
        """Around every change of the cache: an error in between leaves it marked as unknown, until it is reset.

        Of a pass that Ctrl-C ended nothing stays.
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

    def _remove(self, start: int) -> None:
        """Forget positions from `start` on; a memory that cannot is emptied, and filled again up to there."""
        if start < len(self.cells) and not self.context.remove(start):
            self._fill_again(start)

    def _fill_again(self, n: int) -> None:
        """Empty the cache and compute its first `n` positions anew; in between nobody can rely on it."""
        kept = self.cells[:n]
        self.reset()
        self._broken = True
        if kept:
            started = time.perf_counter()
            self.context.decode(kept, 0, 0)
            self.recorder("prefill", n, time.perf_counter() - started)
        self.cells += kept

    def refill(self) -> None:
        """Compute anew what the cache should hold."""
        with self._pass():
            self._fill_again(len(self.cells))

    def rewind(self, n: int) -> None:
        """Forget every position from `n` on."""
        if n < len(self.cells):
            with self._pass():
                self._remove(n)
                del self.cells[n:]

    def reset(self) -> None:
        """Forget everything."""
        self.context.clear()
        self.cells.clear()
        self._broken = False

    def append(self, tokens: Sequence[int], kind: str = "draft") -> Floats:
        """Decode tokens after those in the cache; returns the logits of the last one, `[n_vocab]`, until the next."""
        n_batch = self.context.n_batch
        for begin in range(0, len(tokens), n_batch):
            batch = tokens[begin : begin + n_batch]
            with self._pass():
                started = time.perf_counter()
                logits = self.context.decode(batch, len(self.cells), begin + n_batch >= len(tokens))
                self.recorder(kind, len(batch), time.perf_counter() - started)
                self.cells += batch
        row: Floats = logits[0]
        return row

    def reuse(self, tokens: Sequence[int], limit: int, known: int = 0) -> int:
        """Keep the longest prefix of `tokens` that the cache holds, at most `limit`; returns its length.

        The first `known` tokens are known to be those of the cache.
        """
        n = min(common_prefix(self.cells, tokens, known), limit)
        if self._broken or (n < len(self.cells) and (n == 0 or not self.can_rewind)):
            self.reset()
            return 0
        self.rewind(n)
        return n


class Verifier(TokenCache):
    """The large model with a mask for its slim tier; `mask` may be None where only full passes are needed."""

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int,
        mask: LayerMask | None = None,
        n_threads: int | None = None,
        resume: bool = True,
        context: Context | None = None,
    ) -> None:
        """Allocate the context and try the mask; ValueError with llama.cpp's reason if it refuses the mask.

        `resume=False` turns resuming off (for comparisons). `context` is an empty one to use in place of a new one.
        """
        super().__init__(model, n_ctx=n_ctx, n_threads=n_threads, context=context)
        self.mask = mask
        self.n_full = 0
        self._mask = mask.to_bytes() if mask else b""
        self._inputs: list[Floats] = []  # rows that enter layer mask.first, for cells[n_full:]
        self._resume_mask = b""
        self._input_scale = np.float32(1)
        self.why_no_resume: str | None = "no mask"
        self.resume_pays: Callable[[int], bool] = lambda _tokens: True  # for a number of tokens; set by who knows costs
        if mask:
            try:
                self.context.set_mask(self._mask)
                self.context.set_mask(b"")
                self.why_no_resume = self._prepare_resume(mask) if resume else "turned off"
            except BaseException:
                self.close()
                raise

    @property
    def n_kv(self) -> int:
        """The number of positions in the cache."""
        return len(self.cells)

    def full(self, tokens: Sequence[int], rows: int, kind: str = "full") -> Floats:
        """Append tokens and run the full model over everything that it has not computed yet.

        Returns the logits of the last `rows` positions, `[rows, n_vocab]`, valid until the next pass. Without new
        tokens it resumes where the slim passes left the full model's way, if it can and `resume_pays`.
        """
        n_batch = self.context.n_batch
        while (total := self.n_kv - self.n_full + len(tokens)) > n_batch and rows <= total - n_batch:
            n = max(0, n_batch - (self.n_kv - self.n_full))
            self._full(tokens[:n], 0, kind)
            tokens = tokens[n:]
        return self._full(tokens, rows, kind)

    def _full(self, tokens: Sequence[int], rows: int, kind: str) -> Floats:
        """One batch of `full`, or all that logits are wanted of."""
        with self._pass():
            pending, inputs = self.cells[self.n_full :], self._inputs
            self._remove(self.n_full)
            del self.cells[self.n_full :]
            self._inputs = []
            resumable = not tokens and len(inputs) == len(pending) > 0 and self._resume_mask
            if resumable and self.resume_pays(len(pending)):
                logits = self._resumed(inputs, rows)
            else:
                started = time.perf_counter()
                logits = self.context.decode([*pending, *tokens], self.n_full, rows)
                self.recorder(kind, len(pending) + len(tokens), time.perf_counter() - started)
            self.cells += [*pending, *tokens]
            self.n_full = self.n_kv
        return logits

    def slim(self, tokens: Sequence[int]) -> Floats:
        """Append tokens and run the slim model over them; returns their logits, `[len(tokens), n_vocab]`."""
        assert self._mask, "a verifier without a mask has no slim tier"
        with self._pass():
            logits = self._slim(tokens, len(tokens))
            if self._resume_mask and len(self._inputs) == self.n_kv - self.n_full:
                inputs = self.context.layer_input(len(tokens))
                if inputs is not None:
                    self._inputs += list(inputs)
            self.cells += tokens
        return logits

    def _slim(self, tokens: Sequence[int], rows: int) -> Floats:
        """One pass of the slim model after the cells."""
        self.context.set_mask(self._mask)
        started = time.perf_counter()
        try:
            logits = self.context.decode(tokens, self.n_kv, rows)
        finally:
            self.context.set_mask(b"")
        self.recorder("slim", len(tokens), time.perf_counter() - started)
        return logits

    def _fill_again(self, n: int) -> None:
        """Each position by the tier that had computed it."""
        n_full = min(n, self.n_full)
        by_slim, inputs = self.cells[n_full:n], self._inputs[: n - n_full]
        super()._fill_again(n_full)
        self.n_full = n_full
        if by_slim:
            self._slim(by_slim, 0)
            self.cells += by_slim
            self._inputs += inputs

    def rewind(self, n: int) -> None:
        super().rewind(n)
        self.n_full = min(self.n_full, n)
        del self._inputs[n - self.n_full :]

    def reset(self) -> None:
        super().reset()
        self.context.set_mask(b"")
        self.n_full = 0
        self._inputs.clear()

    def adopt(self, tokens: Sequence[int]) -> None:
        """Someone else has filled the cache: it holds these tokens now, computed by the full model."""
        self.cells[:] = tokens
        self.n_full = len(tokens)
        self._inputs.clear()
        self._broken = False

    @property
    def is_broken(self) -> bool:
        """Whether an interrupted pass has left a cache whose content is not known."""
        return self._broken

    def reuse(self, tokens: Sequence[int], limit: int, known: int = 0) -> int:
        """Keep the longest prefix of `tokens` that the full model has computed, at most `limit`; returns its length."""
        return super().reuse(tokens, min(limit, self.n_full), known)

    @contextmanager
    def drafting(self, mask: LayerMask, recorder: Recorder) -> Iterator[Callable[[int], Floats]]:
        """Decode one token after the other under another mask, for a look ahead that leaves nothing behind.

        `recorder` is told of these passes, in place of the verifier's own.
        Yields a function from the next token to the logits after it, `[n_vocab]`, which are valid until its next call.
        At the end the cache is as it was, whatever happened in between.
        """
        n, skipped = self.n_kv, mask.to_bytes()

        def decode(token: int) -> Floats:
            with self._pass():
                self.context.set_mask(skipped)
                started = time.perf_counter()
                try:
                    logits = self.context.decode([token], len(self.cells), 1)
                finally:
                    self.context.set_mask(b"")
                recorder("draft", 1, time.perf_counter() - started)
                self.cells.append(token)
            row: Floats = logits[0]
            return row

        try:
            yield decode
        finally:
            with interrupts_after():
                self._broken = True
                if not self.context.remove(n):  # also what a pass left that was cut short
                    self._fill_again(n)
                del self.cells[n:]
                self._broken = False

    #
    # resume: layers below the first skipped sublayer are the same in both tiers, so a full pass over tokens that a
    # slim pass has just seen can start at that layer, from the slim pass's own hidden states
    #

    def _resumed(self, inputs: list[Floats], rows: int) -> Floats:
        """Decode the pending cells again from their kept layer inputs, under the mask of the layers below."""
        self.context.set_mask(self._resume_mask)
        started = time.perf_counter()
        try:
            scaled = np.stack(inputs) * self._input_scale
            logits = self.context.decode_embeddings(scaled, self.n_full, rows)
        finally:
            self.context.set_mask(b"")
        self.recorder("resume", len(inputs), time.perf_counter() - started)
        return logits

    def _prepare_resume(self, mask: LayerMask) -> str | None:
        """Set up resuming and try it on a few tokens; returns why not, if it cannot be done for this model."""
        first = mask.first or 0
        if first == 0:
            return "the mask begins at layer 0"
        if not self.can_rewind or not self.model.can_take_embeddings:
            return "the model takes no embeddings of its own width"
        resume_mask = LayerMask.below(mask.n_layer, first).to_bytes()
        try:
            self.context.set_mask(resume_mask)
        except ValueError as error:
            return str(error)
        self.context.set_mask(b"")
        self.context.keep_layer_input(first)
        tokens = [token % self.model.n_vocab for token in (1, 2, 3, 5)][: self.context.n_ctx]
        full = self.context.decode(tokens, 0, len(tokens)).copy()
        inputs = self.context.layer_input(len(tokens))
        if inputs is None:
            self.context.clear()
            return "the architecture does not record layer inputs"
        # some architectures (Gemma 1 and 2) scale embeddings, too, as they scale those of tokens
        for scale in (np.float32(1), np.float32(self.model.n_embd**-0.5)):
            self.context.clear()
            self.context.set_mask(resume_mask)
            resumed = self.context.decode_embeddings(inputs * scale, 0, len(tokens)).copy()
            self.context.set_mask(b"")
            if np.abs(full - resumed).max() <= 1e-3 * np.abs(full).max():
                self._input_scale = scale
                break
        else:
            self.context.clear()
            return "the architecture treats embeddings and tokens differently"
        self.context.clear()
        self._resume_mask = resume_mask
        return None
