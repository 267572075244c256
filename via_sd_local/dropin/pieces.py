"""The text of tokens as they arrive, from the model's vocabulary or from a tokenizer that the user supplies."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..runtime.model import Model
from ..text import Utf8Stream
from .original import LlamaTokenizer

_REPLACEMENT = "\ufffd"  # what a tokenizer shows for bytes of an incomplete character
_WINDOW = 8  # tokens of context for a user's tokenizer, and the most tokens that one character may take


class Tokenizer(Protocol):
    """The part of a llama-cpp-python tokenizer that turns tokens into text; a `Llama` has it, too."""

    def detokenize(self, tokens: list[int], prev_tokens: list[int] | None = None, special: bool = False) -> bytes:
        """Return the bytes of tokens that follow `prev_tokens`."""
        ...


class Pieces(Protocol):
    """Decodes a text token by token; a character that spans several tokens appears with the last of them."""

    def push(self, token: int) -> str:
        """Return the characters that this token completes."""
        ...

    def alone(self, token: int) -> str:
        """Return the text of a token on its own, without bytes that do not form a whole character."""
        ...


class VocabularyPieces:
    """Decodes with the vocabulary in the GGUF file."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._stream = Utf8Stream("ignore")

    def push(self, token: int) -> str:
        return self._stream.push(self._model.piece(token))

    def alone(self, token: int) -> str:
        return self._model.piece(token).decode("utf-8", "ignore")


class TokenizerPieces:
    """Decodes with a user's tokenizer, which sees the last 8 tokens only, so that the time stays linear."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int]) -> None:
        """Continue the text of the tokens `before`."""
        self._tokenizer = tokenizer
        self._decoded = list(before[-_WINDOW:])
        self._pending: list[int] = []

    def push(self, token: int) -> str:
        self._pending.append(token)
        decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        text = decoder.decode(self._tokenizer.detokenize(self._pending, prev_tokens=self._decoded))
        has_more, _ = decoder.getstate()  # bytes of an incomplete character
        if (has_more or text.endswith(_REPLACEMENT)) and len(self._pending) < _WINDOW:
            return ""
        self._decoded, self._pending = (self._decoded + self._pending)[-_WINDOW:], []
        return text

    def alone(self, token: int) -> str:
        return self._tokenizer.detokenize([token]).decode("utf-8", "ignore").replace(_REPLACEMENT, "")


@dataclass(frozen=True, slots=True)
class Detokenizer:
    """Turns the tokens of one `Llama` into text, with its tokenizer or, where that is the model's own, faster."""

    model: Model
    tokenizer: Tokenizer

    @property
    def uses_vocabulary(self) -> bool:
        """Whether the tokenizer is the model's own vocabulary, not one that the user supplies."""
        return type(self.tokenizer) is LlamaTokenizer

    def pieces(self, before: Sequence[int]) -> Pieces:
        """Return a decoder for the tokens that follow the text of the tokens `before`."""
        return VocabularyPieces(self.model) if self.uses_vocabulary else TokenizerPieces(self.tokenizer, before)

    def detokenize(self, tokens: list[int], prev_tokens: list[int] | None = None, special: bool = False) -> bytes:
        """Return the bytes of tokens; control tokens are empty unless `special` is set."""
        if special or not tokens or not self.uses_vocabulary:
            return self.tokenizer.detokenize(tokens, prev_tokens=prev_tokens, special=special)
        text = b"".join(map(self.model.piece, tokens))
        return text[1:] if tokens[0] == self.model.bos and text[:1] == b" " else text
