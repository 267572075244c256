"""The context that the engine decodes into and that `Llama` shows to its users.

Users of llama-cpp-python read and write `input_ids` and `n_tokens`, and some decode into the context themselves
(images, guidance). The verifier keeps an account of its own. `SharedContext` owns both and reconciles them: before
every use with `synchronise`, after every step with `publish` and `settle`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..binding import llama
from ..errors import NativeError
from ..tiers.cache import common_prefix
from ..tiers.verifier import Verifier
from .logit_rows import LogitRows
from .original import LlamaState


@dataclass(slots=True)
class ContextTokens:
    """What `Llama` shows of its context, for users to read and write.

    `input_ids` `[n_ctx]` is the text that was decoded last; the KV cache holds its first `n_tokens` tokens.
    `requires_eval` is llama-cpp-python's note that no logits belong to that position.
    """

    input_ids: npt.NDArray[np.intc] = field(default_factory=lambda: np.zeros(0, np.intc))
    n_tokens: int = 0
    requires_eval: bool = True


class SharedContext:
    """One context with its verifier, its published tokens, its logit rows and its saved states."""

    def __init__(self, verifier: Verifier, tokens: ContextTokens, *, keeps_all: bool) -> None:
        """Share the verifier's context; `keeps_all` keeps the logits of every decoded position (`logits_all`)."""
        self.verifier = verifier
        self.tokens = tokens
        self.rows = LogitRows(verifier.model.n_vocab, keeps_all=keeps_all)

    #
    # the two accounts of the cache
    #

    def synchronise(self) -> None:
        """Take over what users did to the context, so that the verifier's cells are `input_ids[:n_tokens]`.

        Positions from `n_tokens` on are removed, whoever decoded them. A memory that cannot be rolled back keeps the
        cells that the verifier knows of. Raises ValueError if `n_tokens` is out of range.
        """
        tokens, verifier = self.tokens, self.verifier
        if verifier.is_broken:
            verifier.reset()
            tokens.n_tokens = 0
        n = int(tokens.n_tokens)
        if not 0 <= n <= len(tokens.input_ids):
            raise ValueError(f"n_tokens is {n}; it must be from 0 to the context size of {len(tokens.input_ids)}")
        shown = tokens.input_ids[:n].tolist()
        n_common = common_prefix(verifier.cells, shown)
        if n_common < n:
            verifier.adopt(shown)
        elif n == 0:
            self.forget()
        elif verifier.can_rewind:
            verifier.rewind(n)
        self._remove_unknown()
        self.rows.cut(n_common)

    def _remove_unknown(self) -> None:
        """Remove positions beyond the verifier's cells; a memory that cannot do so is filled again."""
        if not self.verifier.context.remove(self.verifier.n_kv):
            self.verifier.refill()

    def publish(self, start: int, text: Sequence[int]) -> None:
        """Show `text` from position `start` on, and set `n_tokens` to the number of cells in the cache."""
        self.tokens.input_ids[start : start + len(text)] = text
        self.tokens.n_tokens = self.verifier.n_kv
        self.tokens.requires_eval = False

    def show(self, n: int) -> None:
        """Show only the first `n` tokens of the cache, until the next call of `publish` or `settle`."""
        self.tokens.n_tokens = min(n, self.verifier.n_kv)

    def settle(self, n_text: int) -> None:
        """End a generation: keep the cells that the full model alone computed, at most `n_text`, and show them.

        The cells may belong to another text than the last one published, if the generation decoded nothing.
        """
        verifier = self.verifier
        if verifier.is_broken:
            self.forget()
            return
        verifier.rewind(min(verifier.n_exact, n_text))
        self.tokens.input_ids[: verifier.n_kv] = verifier.cells
        self.tokens.n_tokens = verifier.n_kv

    def forget(self) -> None:
        """Empty the cache, by removing its cells where the memory can do so."""
        if self.verifier.can_rewind and not self.verifier.is_broken:
            self.verifier.rewind(0)
        else:
            self.verifier.reset()
        self.tokens.n_tokens = 0
        self.rows.cut(0)

    def clear(self) -> None:
        """Empty a cache whose content is unknown."""
        self.verifier.reset()
        self.tokens.n_tokens = 0
        self.rows.cut(0)

    #
    # evaluation without generation
    #

    def evaluate(self, tokens: Sequence[int]) -> None:
        """Decode tokens after the first `n_tokens` of the context.

        Raises ValueError for tokens that exceed the context or the vocabulary, and NativeError if the memory holds
        more than `n_tokens` positions and cannot be rolled back.
        """
        verifier = self.verifier
        self.synchronise()
        n, n_ctx, n_vocab = self.tokens.n_tokens, len(self.tokens.input_ids), verifier.model.n_vocab
        if n + len(tokens) > n_ctx:
            raise ValueError(f"{len(tokens)} tokens after {n} exceed the context of {n_ctx} tokens (n_ctx)")
        if unknown := [token for token in tokens if not 0 <= token < n_vocab]:
            raise ValueError(f"token {unknown[0]} is not in the vocabulary; it must be from 0 to {n_vocab - 1}")
        if verifier.n_kv > n:
            raise NativeError(f"{verifier.model.path.name}: this model's memory cannot be rolled back; call reset()")
        n_batch = verifier.context.n_batch
        for start in range(0, len(tokens), n_batch):
            batch = tokens[start : start + n_batch]
            n_rows = len(batch) if self.rows.keeps_all else int(start + n_batch >= len(tokens))
            logits = verifier.full(batch, n_rows, "prefill")
            if n_rows:
                self.rows.put(n + start + len(batch) - n_rows, logits)
            self.publish(n + start, batch)

    #
    # saved states
    #

    def save(self, seed: int) -> LlamaState:
        """Copy the context into a state, without the positions that only the slim tier computed."""
        handle, tokens = self.verifier.context.handle, self.tokens
        buffer = (ctypes.c_uint8 * int(llama.llama_state_get_size(handle)))()
        n_bytes = int(llama.llama_state_get_data(handle, buffer, len(buffer)))
        return LlamaState(
            scores=self.rows.array(tokens.n_tokens)[: tokens.n_tokens].copy(),
            input_ids=tokens.input_ids.copy(),
            n_tokens=min(tokens.n_tokens, self.verifier.n_exact),
            llama_state=bytes(memoryview(buffer)[:n_bytes]),
            llama_state_size=n_bytes,
            seed=seed,
        )

    def restore(self, state: LlamaState) -> None:
        """Replace the context by a saved one; RuntimeError if that does not fit, with the context left empty."""
        verifier, tokens, n = self.verifier, self.tokens, state.n_tokens
        n_ctx, n_bytes = verifier.context.n_ctx, state.llama_state_size
        data = (ctypes.c_uint8 * n_bytes).from_buffer_copy(state.llama_state)
        n_read = llama.llama_state_set_data(verifier.context.handle, data, n_bytes) if n <= n_ctx else -1
        if n_read != n_bytes:
            self.clear()
            raise RuntimeError(f"this state of {n} tokens does not fit into the context of {n_ctx} tokens")
        tokens.input_ids[:] = 0
        tokens.input_ids[:n] = state.input_ids[:n]
        verifier.adopt(tokens.input_ids[:n].tolist())
        self._remove_unknown()  # positions that only the slim tier had computed
        self.rows.cut(0)
        if self.rows.keeps_all and len(state.scores) >= n > 0:
            self.rows.put(0, state.scores[:n])
        tokens.n_tokens, tokens.requires_eval = n, True
