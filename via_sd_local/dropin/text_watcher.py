"""The text of an answer as it grows: whole characters, up to the first stop, with log-probabilities if requested."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..arrays import Floats
from ..engine.watch import Flow
from ..text import StopStrings
from .logprobs import TokenLogprobs, logprobs_of
from .pieces import Pieces

# (all tokens so far `[n]`, logits of the next one `[n_vocab]`) → whether to stop, as llama-cpp-python's criteria
Criterion: TypeAlias = Callable[[npt.NDArray[np.intc], Floats], bool]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The text that one token, or an echoed prompt, adds; `entries` are its log-probabilities if requested."""

    text: str
    entries: tuple[TokenLogprobs, ...] = ()


@dataclass(slots=True)
class _PendingText:
    """The text of a token that a stop may still cut off; `end` is its end in characters of the answer."""

    text: str
    end: int
    entries: tuple[TokenLogprobs, ...]


class TextWatcher:
    """Watches a generation and decodes its text; `take` returns what no later token can change.

    The time is linear in the length of the text.
    """

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
        """Watch the answer to a prompt.

        `criteria` ends the text before the next token. `logprobs` is the number of best tokens to report with each
        token, None for no log-probabilities; their text offsets start at `offset` characters. `echo` is a text to begin
        with, along with the log-probabilities of the prompt's tokens from `skip` on. `keep` receives every row of
        logits with its position, those of the prompt from `prompt_from` on.
        """
        self.prompt_from = prompt_from
        self._n = len(prompt)
        self._ids = np.array([*prompt, *[0] * 64], dtype=np.intc)
        self._pieces, self._stops = pieces, StopStrings(stops)
        self._stop_tokens, self._criteria = stop_tokens, criteria
        self._logprobs, self._offset, self._keep = logprobs, offset, keep
        self._echo = echo
        scores_prompt = echo is not None and logprobs is not None
        self._scored = _ScoredPrompt(prompt, echo or "", skip, pieces, logprobs or 0) if scores_prompt else None
        self._pending: deque[_PendingText] = deque()
        self._n_decoded = self._n_certain = 0  # characters of the answer: decoded, and certain not to be in a stop

    #
    # called by the generation
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
            entries = (logprobs_of(logits, token, self._logprobs, self._offset + self._n_decoded, self._pieces.alone),)
        self._n_decoded += len(text)
        if text or entries:
            self._pending.append(_PendingText(text, self._n_decoded, entries))
        certain, stopped = self._stops.push(text)
        self._n_certain += len(certain)
        return Flow.END_AFTER if stopped else Flow.GO_ON

    #
    # called by the consumer
    #

    @property
    def stopped(self) -> bool:
        """Whether a stop string ended the text; final once `take` was called with `finished`."""
        return self._stops.found

    def take(self, *, finished: bool) -> list[TextDelta]:
        """Return the text that has become certain since the last call, a delta for each token."""
        deltas: list[TextDelta] = []
        if self._echo is not None:
            deltas.append(TextDelta(self._echo, tuple(self._scored.entries) if self._scored is not None else ()))
            self._echo = None
        if finished:
            self._n_certain += len(self._stops.finish())
        while self._pending and self._pending[0].end <= self._n_certain:
            token = self._pending.popleft()
            deltas.append(TextDelta(token.text, token.entries))
        if finished and self._pending:  # the stop begins within this token, and cuts off all that follow
            token = self._pending.popleft()
            n_kept = len(token.text) - (token.end - self._n_certain)
            if n_kept > 0:
                deltas.append(TextDelta(token.text[:n_kept], token.entries))
            self._pending.clear()
        return deltas


class _ScoredPrompt:
    """The log-probabilities of an echoed prompt, from its token `skip` on."""

    def __init__(self, prompt: Sequence[int], text: str, skip: int, pieces: Pieces, n: int) -> None:
        self._prompt, self._skip, self._pieces, self._top = prompt, skip, pieces, n
        first = pieces.alone(prompt[skip]) if skip < len(prompt) else ""
        # SentencePiece puts a space before the text
        self._offset = len(first) - (first[:1] == " " != text[:1])
        self.entries = [TokenLogprobs(first, 0, None, None)] if skip < len(prompt) else []

    def see(self, start: int, logits: Floats) -> None:
        """Take logits `[n, n_vocab]` that follow the prompt's tokens from `start` on."""
        for position, row in enumerate(logits, start + 1):
            if self._skip < position < len(self._prompt):
                entry = logprobs_of(row, self._prompt[position], self._top, self._offset, self._pieces.alone)
                self.entries.append(entry)
                self._offset += len(entry.text)
