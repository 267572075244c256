"""The largest log-probabilities of many positions, in place of whole vocabularies (152k floats a position)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..arrays import Floats

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
        ids, log_probs = np.empty((len(logits), k), np.int32), np.empty((len(logits), k), np.float32)
        for i, row in enumerate(logits):  # one row stays in the processor's cache
            ids[i] = _best(row, k)
            shifted = row - row[ids[i, 0]]
            log_probs[i] = shifted[ids[i]] - np.log(np.exp(shifted).sum())
        return cls(ids, log_probs)

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


def _best(row: Floats, k: int) -> Tokens:
    """The k largest entries' places, best first. Few entries reach the k-th largest of many slices' maxima."""
    slices = 4 * k
    width = len(row) // slices
    least = np.sort(row[: slices * width].reshape(slices, width).max(axis=1))[-k] if width > 1 else -np.inf
    some = np.flatnonzero(row >= least)
    best: Tokens = some[np.argsort(-row[some], kind="stable")[:k]].astype(np.int32)
    return best
