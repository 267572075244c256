"""Log-probabilities of tokens under the full model, before any sampler setting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Floats
from ..sampling.distribution import log_softmax


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """One token's entry: its text, where that begins (in characters), its log-probability, the best ones' by text.

    The first token of an echoed prompt has neither: nothing comes before it.
    """

    text: str
    offset: int
    logprob: float | None
    top: dict[str, float] | None


def of_token(row: Floats, token: int, n: int, offset: int, text_of: Callable[[int], str]) -> TokenLogprobs:
    """From logits `[n_vocab]`; `top` has the `n` best tokens, the best first, and this one.

    Of several tokens with one text (parts of characters) the best one counts.
    """
    log_probs = log_softmax(row)
    n = min(n, len(row))
    best = np.argpartition(-log_probs, n - 1)[:n] if n else np.empty(0, np.intp)
    best = best[np.lexsort((-best, -log_probs[best]))]
    text = text_of(token)
    top: dict[str, float] = {}
    for other in best:
        top.setdefault(text_of(int(other)), float(log_probs[other]))
    top[text] = float(log_probs[token])
    return TokenLogprobs(text, offset, float(log_probs[token]), top)


def as_columns(entries: Iterable[TokenLogprobs]) -> dict[str, list[Any]]:
    """The form of a text completion's `logprobs`."""
    entries = list(entries)
    return {
        "tokens": [entry.text for entry in entries],
        "text_offset": [entry.offset for entry in entries],
        "token_logprobs": [entry.logprob for entry in entries],
        "top_logprobs": [entry.top for entry in entries],
    }
