"""The verifier: one context of the large model that serves as the full and as the slim tier.

Three watermarks describe its cache. Positions from `n_full` up to `n_kv` are pending: only the slim model has computed
them, and the next full pass computes them again. Positions below `n_exact` were computed by the full model alone.
Positions from `n_exact` up to `n_full` were settled after slim passes that wrote the K/V of the skipped attention
sublayers, too: later passes attend to this approximation. Unless positions are settled, `n_exact` equals `n_full`, and
full logits never depend on slim passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Floats
from ..interrupts import interrupts_after
from ..mask import LayerMask
from ..sampling.factory import make_sampler
from .cache import Recorder, TokenCache, ignore, timed

if TYPE_CHECKING:
    from ..runtime.context import Context
    from ..runtime.model import Model
    from ..sampling.params import LogitsProcessor, SamplingParams
    from ..sampling.sampler import Sampler


class Verifier(TokenCache):
    """The large model with a layer mask for its slim tier; without a mask there are only full passes."""

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
        """Open the context and try the mask; ValueError with llama.cpp's reason if it refuses the mask.

        `resume=False` turns resuming off, for comparisons. `context` is an empty context to use in place of a new one.
        """
        super().__init__(model, n_ctx=n_ctx, n_threads=n_threads, context=context)
        self.mask = mask
        self.n_full = 0
        self.n_exact = 0
        self._n_written = 0  # positions below have K/V in every layer; at least n_full
        self._mask = mask.to_bytes() if mask else b""
        self._writing_mask = mask.to_bytes(writes_kv=True) if mask else b""
        self._inputs: list[Floats] = []  # hidden states that enter layer mask.first, for cells[n_full:]
        self._resume_mask = b""
        self._input_scale = np.float32(1)
        self.why_no_resume: str | None = "no mask"
        if mask:
            try:
                self.context.check_mask(self._mask)
                self.why_no_resume = self._prepare_resume(mask) if resume else "turned off"
            except BaseException:
                self.close()
                raise

    #
    # facts that do not change
    #

    @property
    def name(self) -> str:
        """The file name of the model."""
        return self.model.path.name

    @property
    def n_ctx(self) -> int:
        """The number of positions that the context holds."""
        return self.context.n_ctx

    @property
    def n_batch(self) -> int:
        """The most tokens of one call of llama_decode."""
        return self.context.n_batch

    @property
    def n_vocab(self) -> int:
        """The size of the vocabulary."""
        return self.model.n_vocab

    @property
    def n_bytes(self) -> int:
        """The size of the model's weights, in bytes."""
        return self.model.n_bytes

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end a text."""
        return self.model.eog

    @property
    def has_slim_tier(self) -> bool:
        """Whether there is a mask that skips at least one sublayer."""
        return bool(self._mask)

    def make_sampler(
        self, params: SamplingParams, prompt: Sequence[int], processors: Sequence[LogitsProcessor]
    ) -> Sampler:
        """Return a sampler over this model's vocabulary; ValueError for parameters that the model cannot follow."""
        return make_sampler(self.model, params, prompt, processors)

    #
    # passes
    #

    @property
    def n_kv(self) -> int:
        """The number of positions in the cache."""
        return len(self.cells)

    @property
    def can_resume(self) -> bool:
        """Whether a full pass without new tokens could start at the first skipped layer instead of at the first one.

        It can where slim passes have left the hidden states of every position that the full model has not computed.
        """
        return bool(self._resume_mask) and 0 < self.n_kv - self.n_full == len(self._inputs)

    def full(
        self,
        tokens: Sequence[int],
        rows: int,
        kind: str = "full",
        *,
        recorder: Recorder = ignore,
        resume: bool = True,
    ) -> Floats:
        """Append tokens and run the full model over every position that it has not computed yet.

        Returns the logits of the last `rows` positions, `[rows, n_vocab]`, valid until the next pass. Without new
        tokens the pass resumes from the hidden states of the slim passes if `resume` and `can_resume`.
        """
        n_batch = self.context.n_batch
        while (total := self.n_kv - self.n_full + len(tokens)) > n_batch and rows <= total - n_batch:
            n = max(0, n_batch - (self.n_kv - self.n_full))
            self._full(tokens[:n], 0, kind, recorder, resume)
            tokens = tokens[n:]
        return self._full(tokens, rows, kind, recorder, resume)

    def _full(self, tokens: Sequence[int], rows: int, kind: str, recorder: Recorder, resume: bool) -> Floats:
        """Run one batch of `full`, or the batch with all positions whose logits are wanted."""
        with self._changing():
            pending, inputs = self.cells[self.n_full :], self._inputs
            self._remove(self.n_full, recorder)
            resumes = resume and not tokens and self.can_resume  # not so where the cache had to be filled again
            del self.cells[self.n_full :]
            self._inputs = []
            if resumes:
                logits = self._resume(inputs, rows, recorder)
            else:
                logits = self._decode([*pending, *tokens], rows, kind, recorder)
            is_exact = self.n_exact == self.n_full
            self.cells += [*pending, *tokens]
            self.n_full = self._n_written = self.n_kv
            if is_exact:
                self.n_exact = self.n_full
        return logits

    def slim(self, tokens: Sequence[int], *, write_through: bool = False, recorder: Recorder = ignore) -> Floats:
        """Append tokens and run the slim model over them.

        With `write_through`, the K/V of skipped attention sublayers are computed and written as well, so that the
        positions can be settled. Returns the logits of the tokens, `[len(tokens), n_vocab]`, valid until the next pass.
        """
        assert self._mask, "a verifier without a mask has no slim tier"
        with self._changing():
            logits = self._slim(tokens, len(tokens), recorder, write_through=write_through)
            if write_through and self._n_written == self.n_kv:
                self._n_written += len(tokens)
            if self._resume_mask and len(self._inputs) == self.n_kv - self.n_full:
                inputs = self.context.layer_input(len(tokens))
                if inputs is not None:
                    self._inputs += list(inputs)
            self.cells += tokens
        return logits

    def _slim(self, tokens: Sequence[int], rows: int, recorder: Recorder, *, write_through: bool = False) -> Floats:
        """Run the slim model over tokens behind the cells, which the caller extends."""
        with self.context.masked(self._writing_mask if write_through else self._mask):
            return self._decode(tokens, rows, "slim", recorder)

    #
    # the cache
    #

    def settle(self, n: int) -> None:
        """Let the first `n` positions count as computed, though the slim model computed the last of them.

        Their K/V in the skipped sublayers come from hidden states of the slim model, and all later logits depend on
        them. Raises ValueError for positions whose slim pass did not write K/V through.
        """
        if n > self._n_written:
            raise ValueError(f"position {n - 1} cannot be settled: no pass has written its K/V in every layer")
        if n > self.n_full:
            del self._inputs[: n - self.n_full]
            self.n_full = n

    def reopen(self, n: int) -> None:
        """Make settled positions from `n` on pending again, so that the next full pass computes them."""
        n = max(n, self.n_exact)
        if n < self.n_full:
            self.n_full = n
            self._inputs.clear()

    def _refill(self, n: int, recorder: Recorder) -> None:
        """Compute each position again by the tier that had computed it."""
        n_full = min(n, self.n_full)
        by_slim, inputs = self.cells[n_full:n], self._inputs[: n - n_full]
        super()._refill(n_full, recorder)
        self.n_full = self.n_exact = self._n_written = n_full
        if by_slim:
            self._slim(by_slim, 0, recorder)
            self.cells += by_slim
            self._inputs += inputs

    def rewind(self, n: int, recorder: Recorder = ignore) -> None:
        super().rewind(n, recorder)
        self.n_full, self.n_exact = min(self.n_full, n), min(self.n_exact, n)
        self._n_written = min(self._n_written, n)
        del self._inputs[n - self.n_full :]

    def reset(self) -> None:
        super().reset()
        self.context.set_mask(b"")
        self.n_full = self.n_exact = self._n_written = 0
        self._inputs.clear()

    def adopt(self, tokens: Sequence[int]) -> None:
        """Take over a cache that somebody else has filled with these tokens by full passes."""
        self.cells[:] = tokens
        self.n_full = self.n_exact = self._n_written = len(tokens)
        self._inputs.clear()
        self._broken = False

    def reuse(self, tokens: Sequence[int], limit: int, known: int = 0, recorder: Recorder = ignore) -> int:
        """Keep the longest common prefix with `tokens` that the full model alone has computed, and return its length.

        At most `limit` positions are kept.
        """
        return super().reuse(tokens, min(limit, self.n_exact), known, recorder)

    @contextmanager
    def drafting(self, mask: LayerMask, recorder: Recorder) -> Iterator[Callable[[int], Floats]]:
        """Decode one token after the other under another mask; at the end the cache is as it was before.

        Yields a function from the next token to the logits that follow it, `[n_vocab]`, valid until its next call.
        """
        n, skipped = self.n_kv, mask.to_bytes()

        def decode(token: int) -> Floats:
            with self._changing(), self.context.masked(skipped):
                logits = self._decode([token], 1, "draft", recorder)
                self.cells.append(token)
            row: Floats = logits[0]
            return row

        try:
            yield decode
        finally:
            with interrupts_after():
                self._broken = True
                if not self.context.remove(n):  # also the cells of a pass that was cut short
                    self._refill(n, recorder)
                del self.cells[n:]
                self._broken = False

    #
    # resume: the layers below the first skipped sublayer are the same in both tiers, so a full pass over tokens that a
    # slim pass has just seen can start at that layer, from the hidden states of the slim pass
    #

    def _resume(self, inputs: list[Floats], rows: int, recorder: Recorder) -> Floats:
        """Decode the pending positions from their layer inputs, under the mask that skips the layers below."""
        scaled = np.stack(inputs) * self._input_scale
        with self.context.masked(self._resume_mask):
            return timed(
                "resume",
                len(inputs),
                recorder,
                lambda: self.context.decode_embeddings(scaled, self.n_full, rows),
            )

    def _prepare_resume(self, mask: LayerMask) -> str | None:
        """Set up resuming and try it on four tokens; return the reason if it is not possible, else None."""
        first = mask.first or 0
        if first == 0:
            return "the mask begins at layer 0"
        if not self.can_rewind or not self.model.can_take_embeddings:
            return "the model takes no embeddings of its own width"
        resume_mask = LayerMask.below(mask.n_layer, first).to_bytes()
        try:
            self.context.check_mask(resume_mask)
        except ValueError as error:
            return str(error)
        self.context.keep_layer_input(first)
        reason = self._try_resume(resume_mask)
        self.context.clear()
        if reason is None:
            self._resume_mask = resume_mask
        return reason

    def _try_resume(self, resume_mask: bytes) -> str | None:
        """Compare a resumed pass with a full one, and find the scale of its inputs; the reason if they differ."""
        tokens = [token % self.model.n_vocab for token in (1, 2, 3, 5)][: self.context.n_ctx]
        full = self.context.decode(tokens, 0, len(tokens)).copy()
        inputs = self.context.layer_input(len(tokens))
        if inputs is None:
            return "the architecture does not record layer inputs"
        # some architectures (Gemma 1 and 2) scale embeddings that they are given, as they scale those of tokens
        for scale in (np.float32(1), np.float32(self.model.n_embd**-0.5)):
            self.context.clear()
            with self.context.masked(resume_mask):
                resumed = self.context.decode_embeddings(inputs * scale, 0, len(tokens)).copy()
            if np.abs(full - resumed).max() <= 1e-3 * np.abs(full).max():
                self._input_scale = scale
                return None
        return "the architecture treats embeddings and tokens differently"
