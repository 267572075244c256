"""The text of tokens as they come: from the vocabulary, or from a tokenizer that the user brought along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..runtime.model import Model
from ..text import Utf8Stream

_UNFINISHED = "\ufffd"  # what a tokenizer shows for bytes that are no whole character


class Pieces(Protocol):
    """Text token by token; a character that several tokens make up appears with the last of them."""

    def push(self, token: int) -> str:
        """The characters that this token completes."""
        ...

    def alone(self, token: int) -> str:
        """The token's own text, without regard to what is around it; what is no whole character is left out."""
        ...


class VocabularyPieces:
    """By the vocabulary in the GGUF."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._stream = Utf8Stream("ignore")

    def push(self, token: int) -> str:
        return self._stream.push(self._model.piece(token))

    def alone(self, token: int) -> str:
        return self._model.piece(token).decode("utf-8", "ignore")


class TokenizerPieces:
    """By a llama-cpp-python tokenizer, which sees only the last few tokens, so that a text costs linear time."""

    def __init__(self, tokenizer: Any, before: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._shown = list(before[-8:])  # tokens whose text is out
        self._pending: list[int] = []

    def push(self, token: int) -> str:
        self._pending.append(token)
        text: str = self._tokenizer.detokenize(self._pending, prev_tokens=self._shown).decode("utf-8", "ignore")
        if text.endswith(_UNFINISHED) and len(self._pending) < 8:
            return ""
        self._shown, self._pending = (self._shown + self._pending)[-8:], []
        return text

    def alone(self, token: int) -> str:
        text: bytes = self._tokenizer.detokenize([token])
        return text.decode("utf-8", "ignore").replace(_UNFINISHED, "")
