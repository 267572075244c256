"""Draft models of llama-cpp-python as drafters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .drafter import NO_HINTS, Draft, Drafter, Hints


class LlamaDraftModelDrafter(Drafter):
    """Drafts by calling a `llama_cpp.llama_speculative.LlamaDraftModel`, or anything with the same signature.

    The call gets all tokens as an array `[n]` of `intc`, a copy that it may keep, and returns the tokens that may
    follow; those beyond the limit are cut off. Its drafts have no probabilities, so at a temperature they are compared
    with the target's own draws. Raises ValueError for a result that is not a list of token ids.
    """

    name = "llama_cpp"

    def __init__(self, draft_model: Callable[..., Any]) -> None:
        """Draft with `draft_model`; ValueError if it cannot be called."""
        if not callable(draft_model):
            raise ValueError(f"draft_model is {draft_model!r}; it must be a LlamaDraftModel or another callable")
        self._draft_model = draft_model
        self._text = np.empty(256, np.intc)
        self._n = 0

    def propose(self, text: Sequence[int], limit: int, hints: Hints = NO_HINTS) -> Draft:
        self._follow(text, min(hints.unchanged, self._n))
        return Draft(_token_ids(self._draft_model(self._text[: self._n].copy()))[:limit])

    def _follow(self, text: Sequence[int], unchanged: int) -> None:
        if len(text) > len(self._text):
            self._text = np.concatenate([self._text, np.empty(len(text), np.intc)])
        self._text[unchanged : len(text)] = text[unchanged:]
        self._n = len(text)

    def reset(self) -> None:
        self._n = 0


def _token_ids(answer: Any) -> list[int]:
    """Return the token ids that a draft model returned; ValueError for anything else."""
    array = np.asarray(answer)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise ValueError(f"the draft model returned {answer!r:.80}; it must return a list of token ids")
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.floor(array))).all():
        raise ValueError(f"the draft model returned {answer!r:.80}; token ids are whole numbers")
    return [int(token) for token in array]
