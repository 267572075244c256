"""Distributions over tokens, and the softmax that turns logits into them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..arrays import Floats
from .rows import sum_exp

TokenIds: TypeAlias = npt.NDArray[np.int32]


def log_softmax(logits: Floats, tokens: TokenIds | None = None) -> Floats:
    """Return the log-probabilities of logits `[..., n_vocab]`, normalised over the last axis.

    With `tokens` `[k]`, return only theirs, `[..., k]`; the normalisation still covers the whole vocabulary.
    """
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    result: Floats = (shifted if tokens is None else shifted[..., tokens]) - log_sum
    return result


def token_probability(row: Floats, token: int) -> float:
    """Return the softmax probability of one token, given the logits `[n_vocab]` of its position."""
    largest = float(row.max())
    return math.exp(float(row[token]) - largest) / sum_exp(row, largest)


def best_probability(row: Floats, best: int) -> float:
    """Return the softmax probability of `best`, the token with the largest of the logits `[n_vocab]`."""
    return 1 / sum_exp(row, float(row[best]))


@dataclass(frozen=True, slots=True)
class Distribution:
    """The tokens that can be drawn, `[n]`, and their probabilities, `[n]`, which sum to 1; all others have none."""

    tokens: TokenIds
    probabilities: npt.NDArray[np.float64]

    @classmethod
    def from_weights(cls, tokens: TokenIds, weights: npt.NDArray[np.float64]) -> Distribution:
        """Normalise non-negative weights `[n]`, at least one of which is positive."""
        return cls(tokens, weights / weights.sum())

    @classmethod
    def from_logits(cls, tokens: TokenIds, logits: npt.NDArray[np.floating]) -> Distribution:
        """Compute the softmax of logits `[n]` in double precision."""
        return cls.from_weights(tokens, np.exp(logits.astype(np.float64) - logits.max()))

    def probability(self, token: int) -> float:
        """Return the probability of a token; 0 if it cannot be drawn."""
        return float(self.probabilities[self.tokens == token].sum())

    def draw(self, uniform: float) -> int:
        """Return the token at a uniform random number in [0, 1), by inverting the cumulative distribution."""
        cumulative = self.probabilities.cumsum()
        index = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
        return int(self.tokens[min(index, len(self.tokens) - 1)])


def total_variation(a: Distribution, b: Distribution) -> float:
    """Return the total variation distance of two distributions, half the sum of |a - b|, from 0 to 1."""
    size = int(max(a.tokens.max(), b.tokens.max())) + 1
    difference = np.zeros(size)
    np.add.at(difference, a.tokens, a.probabilities)
    np.subtract.at(difference, b.tokens, b.probabilities)
    return float(min(1.0, np.abs(difference).sum() / 2))


def residual(q: Distribution, p: Distribution) -> Distribution:
    """Return max(0, q - p), normalised: the distribution to draw from after a sample of p was rejected.

    Leviathan et al., "Fast inference from transformers via speculative decoding", 2023. If nothing is left (q equals p
    up to rounding), q itself is returned.
    """
    order = np.argsort(p.tokens)
    sorted_tokens = p.tokens[order]
    at = np.minimum(np.searchsorted(sorted_tokens, q.tokens), len(order) - 1)
    in_p = np.where(sorted_tokens[at] == q.tokens, p.probabilities[order][at], 0.0)
    weights = np.maximum(q.probabilities - in_p, 0.0)
    return Distribution.from_weights(q.tokens, weights) if weights.sum() > 0 else q
