"""llama-cpp-python's draft models as drafters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .drafter import NO_HINTS, Draft, Drafter, Hints


class LlamaDraftModelDrafter(Drafter):
    """Asks a `llama_cpp.llama_speculative.LlamaDraftModel`, or anything that is called alike.

    The call gets all tokens as `intc[n]` (a copy that it may keep) and returns those that may follow. More than the
    limit are cut off; what is no list of token ids raises ValueError. Its draft has no probabilities, so at a
    temperature the target's own draws are compared with it.
    """

    name = "llama_cpp"

    def __init__(self, draft_model: Callable[..., Any]) -> None:
        """ValueError for what cannot be called."""
        if not callable(draft_model):
            raise ValueError(f"draft_model is {draft_model!r}; it must be a LlamaDraftModel, which can be called")
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
    """The tokens of an answer; ValueError for what is none."""
    array = np.asarray(answer)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise ValueError(f"the draft model returned {answer!r:.80}; it must return a list of token ids")
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.floor(array))).all():
        raise ValueError(f"the draft model returned {answer!r:.80}; token ids are whole numbers")
    return [int(token) for token in array]
