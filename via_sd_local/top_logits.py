"""The largest log-probabilities of many positions, in place of whole vocabularies (152k floats a position)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .arrays import Floats

KEPT = 64

Tokens: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TopLogits:
    """`ids` and `log_probs`, both `[n, k]`, best first: softmax over the whole vocabulary, of which k are kept.

    What is left out has the probability 1 - sum(exp(log_probs)), each token of it at most the last one kept.
    """

    ids: Tokens
    log_probs: Floats

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: slice) -> TopLogits:
        return TopLogits(self.ids[rows], self.log_probs[rows])

    @classmethod
    def of(cls, logits: Floats, k: int = KEPT) -> TopLogits:
        """From logits `[n, n_vocab]`; with equal logits, the smaller token id comes first, as argmax has it."""
        k = min(k, logits.shape[1])
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        some = np.sort(np.argpartition(-shifted, k - 1, axis=1)[:, :k], axis=1)
        order = np.argsort(-np.take_along_axis(shifted, some, axis=1), axis=1, kind="stable")
        ids = np.take_along_axis(some, order, axis=1)
        # the best one by argmax's own rule, also where the partition left out one of several equals
        ids[:, 0] = logits.argmax(axis=1)
        return cls(ids.astype(np.int32), (np.take_along_axis(shifted, ids, axis=1) - log_sum).astype(np.float32))

    @classmethod
    def join(cls, parts: list[TopLogits]) -> TopLogits:
        """One after the other; ValueError for none."""
        return cls(np.concatenate([part.ids for part in parts]), np.concatenate([part.log_probs for part in parts]))

    @property
    def best(self) -> Tokens:
        """argmax, `[n]`."""
        best: Tokens = self.ids[:, 0]
        return best

    @property
    def confidence(self) -> Floats:
        """The best token's probability, `[n]`."""
        confidence: Floats = np.exp(self.log_probs[:, 0])
        return confidence

    def log_prob_of(self, tokens: Tokens) -> Floats:
        """The log-probability of one token a row, `[n]`; for one that is not kept, an upper bound of it.

        The bound is the smaller of the last kept one's and the logarithm of all that is left out.
        """
        found = self.ids == np.asarray(tokens)[:, None]
        kept = np.take_along_axis(self.log_probs, found.argmax(axis=1)[:, None], axis=1)[:, 0]
        left = np.log(np.maximum(1.0 - np.exp(self.log_probs).sum(axis=1), 1e-12))
        result: Floats = np.where(found.any(axis=1), kept, np.minimum(self.log_probs[:, -1], left)).astype(np.float32)
        return result
