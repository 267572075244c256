"""A draft model: a smaller GGUF with the verifier's vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Floats
from ..errors import ModelError
from ..runtime.vocabulary import check_vocabulary
from ..sampling.sampler import NoTokenLeft, Sampler
from .cache import TokenCache
from .drafter import NO_HINTS, Draft, Drafter, Hints

if TYPE_CHECKING:
    from ..runtime.context import Context
    from ..runtime.model import Model


class ModelDrafter(Drafter):
    """Drafts with a small model; its KV cache follows the text by itself."""

    name = "model"
    reports_passes = True

    def __init__(
        self,
        model: Model,
        verifier: Model,
        *,
        n_ctx: int,
        n_threads: int | None = None,
        min_confidence: float = 0.0,
        context: Context | None = None,
    ) -> None:
        """Check the vocabularies and open a context of `n_ctx` positions, or take over `context`, which must be empty.

        A draft ends before a token to which the model gives less than `min_confidence`. Raises ModelError when the two
        models cannot work together, ValueError for a `min_confidence` outside [0, 1).
        """
        if not 0 <= min_confidence < 1:
            raise ValueError(f"min_confidence is {min_confidence}; it is a probability below 1")
        check_vocabulary(model, verifier)
        self.model = model
        self.cache = TokenCache(model, n_ctx=n_ctx, n_threads=n_threads, context=context)
        if not self.cache.can_rewind:
            self.cache.close()
            raise ModelError(
                f"{model.path}: this model cannot draft: its state cannot be rolled back (it is recurrent)"
            )
        self._n_vocab = verifier.n_vocab
        self._end_tokens = verifier.eog
        self._min_confidence = min_confidence
        self._known = 0  # tokens at the beginning of the cache that are those of the last text

    def propose(self, text: Sequence[int], limit: int, hints: Hints = NO_HINTS) -> Draft:
        """Draft as the sampler of the hints proposes: the model's best tokens, or samples of its distribution."""
        cache = self.cache
        self._known = min(self._known, hints.unchanged)
        limit = min(limit, cache.context.n_ctx - len(text) + 1)
        if limit < 1:
            return Draft([])
        known, self._known = self._known, 0  # until the cache holds this text
        start = cache.reuse(text, len(text) - 1, known, hints.recorder)
        if max(text[start:]) >= self.model.n_vocab:  # a token that only the verifier has
            return Draft([])
        row = self._decode(text[start:], "draft" if hints.unchanged else "prefill", hints)
        self._known = len(text)
        return draft_tokens(
            row,
            lambda token: self._decode([token], "draft", hints),
            limit,
            hints,
            end_tokens=self._end_tokens,
            min_confidence=self._min_confidence,
        )

    def _decode(self, tokens: Sequence[int], kind: str, hints: Hints) -> Floats:
        """Return the logits after these tokens, `[n_vocab]` of the verifier; tokens that the draft lacks get -inf."""
        row = self.cache.append(tokens, kind, hints.recorder)
        if len(row) < self._n_vocab:
            row = np.concatenate([row, np.full(self._n_vocab - len(row), -np.inf, np.float32)])
        shortened: Floats = row[: self._n_vocab]
        return shortened

    def reset(self) -> None:
        self.cache.reset()
        self._known = 0

    def close(self) -> None:
        self.cache.close()


def draft_tokens(
    row: Floats,
    decode: Callable[[int], Floats],
    limit: int,
    hints: Hints,
    *,
    end_tokens: frozenset[int],
    min_confidence: float = 0.0,
) -> Draft:
    """Draft at most `limit` tokens (at least 1) from a model's logits.

    `row` has the logits of the first token, `[n_vocab]`; `decode` takes a token and returns the logits of the next one.
    The draft ends after an end token, before a token to which the model gives less than `min_confidence`, and where the
    hints want no more.
    """
    draft = Draft([])
    fork = hints.sampler.fork()
    try:
        while _extend(draft, row, fork, end_tokens, min_confidence):
            if len(draft.tokens) == limit or not hints.wants_more(draft.confidences):
                break
            fork.accept(draft.tokens[-1])
            row = decode(draft.tokens[-1])
    finally:
        fork.close()
    return draft


def _extend(draft: Draft, row: Floats, sampler: Sampler, end_tokens: frozenset[int], min_confidence: float) -> bool:
    """Append the next token unless the model is unsure or none is left; return whether another one may follow."""
    try:
        proposal = sampler.propose(row)
    except NoTokenLeft:
        return False
    if proposal.probability < min_confidence:
        return False
    draft.tokens.append(proposal.token)
    draft.confidences.append(proposal.probability)
    if proposal.source is not None:
        draft.proposals.append(proposal.source)
    return proposal.token not in end_tokens
