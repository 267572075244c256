"""Log-probabilities of tokens under the full model, before any sampler setting is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Floats
from ..sampling.distribution import log_softmax


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The log-probability of one token, with those of the best tokens at its position by their text.

    `offset` is where its `text` begins, in characters. The first token of an echoed prompt has no log-probabilities,
    since nothing precedes it.
    """

    text: str
    offset: int
    logprob: float | None
    top: dict[str, float] | None


def logprobs_of(row: Floats, token: int, n: int, offset: int, text_of: Callable[[int], str]) -> TokenLogprobs:
    """Return a token's entry from logits `[n_vocab]`; `top` has the `n` best tokens, best first, and the token itself.

    Of several tokens with the same text (parts of characters), `top` has the best.
    """
    log_probs = log_softmax(row)
    n = min(n, len(row))
    best = np.argpartition(-log_probs, n - 1)[:n] if n else np.empty(0, np.intp)
    best = best[np.lexsort((-best, -log_probs[best]))]
    text = text_of(token)
    top: dict[str, float] = {}
    for candidate in best:
        top.setdefault(text_of(int(candidate)), float(log_probs[candidate]))
    top[text] = float(log_probs[token])
    return TokenLogprobs(text, offset, float(log_probs[token]), top)


def as_columns(entries: Iterable[TokenLogprobs]) -> dict[str, list[Any]]:
    """Convert entries to the `logprobs` of a text completion, a dict of columns."""
    entries = list(entries)
    return {
        "tokens": [entry.text for entry in entries],
        "text_offset": [entry.offset for entry in entries],
        "token_logprobs": [entry.logprob for entry in entries],
        "top_logprobs": [entry.top for entry in entries],
    }
