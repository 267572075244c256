"""The text of an answer as it grows: whole characters, up to the first stop, with log-probabilities."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..arrays import Floats
from ..engine.watch import Flow
from ..text import StopStrings
from .logprobs import TokenLogprobs, of_token
from .pieces import Pieces

Criterion = Callable[[npt.NDArray[np.intc], Floats], bool]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """What one token, or an echoed prompt, adds to the text; `entries` where log-probabilities are asked for."""

    text: str
    entries: tuple[TokenLogprobs, ...] = ()


@dataclass(slots=True)
class _Waiting:
    text: str
    end: int  # in characters of the answer
    entries: tuple[TokenLogprobs, ...]


class TextWatcher:
    """Watches a generation; `take` hands out what is settled of its text. All of it is linear in the text's length."""

    def __init__(
        self,
        prompt: Sequence[int],
        pieces: Pieces,
        *,
        stops: Sequence[str] = (),
        stop_tokens: frozenset[int] = frozenset(),
        criteria: Criterion | None = None,
        logprobs: int | None = None,
        offset: int = 0,
        echo: str | None = None,
        skip: int = 0,
        prompt_from: int | None = None,
        keep: Callable[[int, Floats], None] | None = None,
    ) -> None:
        """`offset` is where the answer begins in the text that log-probabilities refer to.

        `criteria` sees all tokens so far, prompt included, `[n]`, and the logits of the next one. `echo` is a text to
        begin with; with log-probabilities those of the prompt's tokens from `skip` on come with it. `keep` gets every
        row of logits with its position.
        """
        self.prompt_from = prompt_from
        self._n = len(prompt)
        self._ids = np.array([*prompt, *[0] * 64], dtype=np.intc)
        self._pieces, self._stops = pieces, StopStrings(stops)
        self._stop_tokens, self._criteria = stop_tokens, criteria
        self._logprobs, self._offset, self._keep = logprobs, offset, keep
        self._echo = echo
        scores = echo is not None and logprobs is not None
        self._scored = _ScoredPrompt(prompt, echo or "", skip, pieces, logprobs or 0) if scores else None
        self._waiting: deque[_Waiting] = deque()
        self._known = self._shown = 0  # characters of the answer: decided, and free of stops

    #
    # what the generation calls
    #

    def see_prompt(self, start: int, logits: Floats) -> None:
        if self._keep is not None:
            self._keep(start, logits)
        if self._scored is not None:
            self._scored.see(start, logits)

    def see_token(self, token: int, logits: Floats) -> Flow:
        if self._keep is not None:
            self._keep(self._n - 1, logits[None])
        if self._criteria is not None and self._criteria(self._ids[: self._n], logits):
            return Flow.END_BEFORE
        if token in self._stop_tokens:
            return Flow.END_BEFORE
        if self._n == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
        self._ids[self._n] = token
        self._n += 1
        text = self._pieces.push(token)
        entries: tuple[TokenLogprobs, ...] = ()
        if self._logprobs is not None:
            entries = (of_token(logits, token, self._logprobs, self._offset + self._known, self._pieces.alone),)
        self._known += len(text)
        if text or entries:
            self._waiting.append(_Waiting(text, self._known, entries))
        free, stopped = self._stops.push(text)
        self._shown += len(free)
        return Flow.END_AFTER if stopped else Flow.GO_ON

    #
    # what the consumer calls
    #

    @property
    def stopped(self) -> bool:
        """Whether a stop string ended the text; certain when `take` was told that it is finished."""
        return self._stops.found

    def take(self, *, finished: bool) -> list[TextDelta]:
        """What has become certain since the last call, a delta for each token."""
        deltas: list[TextDelta] = []
        if self._echo is not None:
            deltas.append(TextDelta(self._echo, tuple(self._scored.entries) if self._scored is not None else ()))
            self._echo = None
        if finished:
            self._shown += len(self._stops.finish())
        while self._waiting and self._waiting[0].end <= self._shown:
            waiting = self._waiting.popleft()
            deltas.append(TextDelta(waiting.text, waiting.entries))
        if finished and self._waiting:  # the stop begins within this token, and what follows it is cut off
            waiting = self._waiting.popleft()
            keep = len(waiting.text) - (waiting.end - self._shown)
            if keep > 0:
                deltas.append(TextDelta(waiting.text[:keep], waiting.entries))
            self._waiting.clear()
        return deltas


class _ScoredPrompt:
    """The entries of an echoed prompt, from its token `skip` on."""

    def __init__(self, prompt: Sequence[int], text: str, skip: int, pieces: Pieces, n: int) -> None:
        self._prompt, self._skip, self._pieces, self._top = prompt, skip, pieces, n
        first = pieces.alone(prompt[skip]) if skip < len(prompt) else ""
        # SentencePiece puts a blank before the text
        self._offset = len(first) - (first[:1] == " " != text[:1])
        self.entries = [TokenLogprobs(first, 0, None, None)] if skip < len(prompt) else []

    def see(self, start: int, logits: Floats) -> None:
        """Rows `[n, n_vocab]` that follow the tokens from `start` on."""
        for position, row in enumerate(logits, start + 1):
            if self._skip < position < len(self._prompt):
                entry = of_token(row, self._prompt[position], self._top, self._offset, self._pieces.alone)
                self.entries.append(entry)
                self._offset += len(entry.text)
