"""llama-cpp-python's draft models as drafters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .drafters import Draft, WantsMore, always
from .sampling import GREEDY, Sampler
from .tiers import Recorder, ignore


class LlamaDraftModelDrafter:
    """Asks a `llama_cpp.llama_speculative.LlamaDraftModel`, or anything that is called alike.

    The call gets all tokens as `intc[n]` (a copy that it may keep) and returns those that may follow. More than the
    limit are cut off; what is no list of token ids raises ValueError. Its draft has no probabilities, so at a
    temperature the target's own draws are compared with it.
    """

    name = "llama_cpp"
    is_free = False

    def __init__(self, draft_model: Callable[..., Any]) -> None:
        """ValueError for what cannot be called."""
        if not callable(draft_model):
            raise ValueError(f"draft_model is {draft_model!r}; it must be a LlamaDraftModel, which can be called")
        self._draft_model = draft_model
        self._recorder: Recorder = ignore
        self._text = np.empty(256, np.intc)
        self._n = 0

    def propose(
        self,
        text: Sequence[int],
        limit: int,
        sampler: Sampler = GREEDY,
        wants_more: WantsMore = always,
        unchanged: int = 0,
    ) -> Draft:
        self._follow(text, min(unchanged, self._n))
        started = time.perf_counter()
        answer = self._draft_model(self._text[: self._n].copy())
        seconds = time.perf_counter() - started
        tokens = _token_ids(answer)[:limit]
        # a call is no pass of ours, but it costs time: as if each of its tokens had been one
        for _ in range(max(len(tokens), 1)):
            self._recorder("draft", 1, seconds / max(len(tokens), 1))
        return Draft(tokens)

    def _follow(self, text: Sequence[int], unchanged: int) -> None:
        if len(text) > len(self._text):
            self._text = np.concatenate([self._text, np.empty(len(text), np.intc)])
        self._text[unchanged : len(text)] = text[unchanged:]
        self._n = len(text)

    def observe(self, accepted: int) -> None:
        """It does not learn."""

    def begin(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def close(self) -> None:
        """The draft model is the caller's."""


def _token_ids(answer: Any) -> list[int]:
    """The tokens of an answer; ValueError for what is none."""
    array = np.asarray(answer)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise ValueError(f"the draft model returned {answer!r:.80}; it must return a list of token ids")
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.floor(array))).all():
        raise ValueError(f"the draft model returned {answer!r:.80}; token ids are whole numbers")
    return [int(token) for token in array]
