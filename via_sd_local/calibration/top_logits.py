"""Truncated distributions: the largest log-probabilities of each position, in place of whole vocabularies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Floats
from ..sampling.distribution import TokenIds, log_softmax

KEPT = 64  # log-probabilities of a position, of some 150,000 tokens

# In place of log 0. float32 log-probabilities sum to 1 within about 1e-6, so a rest below that is rounding error; the
# floor is far lower, and is the same for an empty rest as for an impossible token.
LOG_ZERO = -30.0


@dataclass(frozen=True, slots=True)
class TopLogits:
    """The k most probable tokens of n positions: `ids` and `log_probs`, both `[n, k]`, in descending order.

    Log-probabilities are normalised over the whole vocabulary. The tokens that are not kept share the probability
    exp(`log_rest(log_probs)`), and none of them is more probable than the last one kept.
    """

    ids: TokenIds
    log_probs: Floats

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: slice) -> TopLogits:
        return TopLogits(self.ids[rows], self.log_probs[rows])

    @classmethod
    def from_logits(cls, logits: Floats, k: int = KEPT) -> TopLogits:
        """Truncate logits `[n, n_vocab]`; of equal logits, the smaller token id comes first, as with argmax."""
        k = min(k, logits.shape[1])
        ids, log_probs = np.empty((len(logits), k), np.int32), np.empty((len(logits), k), np.float32)
        for i, row in enumerate(logits):  # row by row: one row fits into the processor's cache
            ids[i] = _largest(row, k)
            log_probs[i] = log_softmax(row, ids[i])
        return cls(ids, log_probs)

    @classmethod
    def join(cls, parts: Sequence[TopLogits]) -> TopLogits:
        """Concatenate positions; ValueError for no parts."""
        return cls(np.concatenate([part.ids for part in parts]), np.concatenate([part.log_probs for part in parts]))

    @property
    def best(self) -> TokenIds:
        """The most probable tokens, `[n]`."""
        best: TokenIds = self.ids[:, 0]
        return best

    @property
    def confidence(self) -> Floats:
        """The probabilities of the most probable tokens, `[n]`."""
        confidence: Floats = np.exp(self.log_probs[:, 0])
        return confidence

    def log_prob_of(self, tokens: TokenIds) -> Floats:
        """Return the log-probability of one token for each position, `[n]`; for a token not kept, an upper bound.

        The bound is the smaller of the last kept token's log-probability and that of the whole rest.
        """
        matches = self.ids == np.asarray(tokens)[:, None]
        kept = np.take_along_axis(self.log_probs, matches.argmax(axis=1)[:, None], axis=1)[:, 0]
        bound = np.minimum(self.log_probs[:, -1], log_rest(self.log_probs)[:, 0])
        result: Floats = np.where(matches.any(axis=1), kept, bound).astype(np.float32)
        return result


def log_rest(log_probs: Floats) -> Floats:
    """Return the log-probability `[n, 1]` of everything but the events with log-probabilities `[n, k]`.

    The result is at least LOG_ZERO.
    """
    rest = 1.0 - np.exp(log_probs.astype(np.float64)).sum(axis=1, keepdims=True)
    result: Floats = np.log(np.maximum(rest, np.exp(LOG_ZERO))).astype(np.float32)
    return result


def _largest(row: Floats, k: int) -> TokenIds:
    """Return the indices of the k largest entries, in descending order.

    The k-th largest of the maxima of many slices is a lower bound that few entries reach; only those are sorted.
    """
    slices = 4 * k
    width = len(row) // slices
    bound = np.sort(row[: slices * width].reshape(slices, width).max(axis=1))[-k] if width > 1 else -np.inf
    candidates = np.flatnonzero(row >= bound)
    largest: TokenIds = candidates[np.argsort(-row[candidates], kind="stable")[:k]].astype(np.int32)
    return largest
