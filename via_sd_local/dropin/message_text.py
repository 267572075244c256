"""Control tokens that are typed in chat messages, such as `<|im_end|>`, and are to be text.

A chat handler renders the messages with a template, and has the whole prompt tokenised with control tokens
recognised. Whoever writes a message could thereby end it and go on in another role. So control tokens are marked in
the messages before a handler sees them, and marked ones are text to the tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..runtime.literals import any_of

# noncharacters, which Unicode reserves for internal use
_BEGIN, _END = "\ufdd0", "\ufdd1"


def without_marks(text: str) -> str:
    """Return a text without the marks around control tokens."""
    return text.replace(_BEGIN, "").replace(_END, "")


class MessageText:
    """Marks control tokens in messages, and tokenises prompts in which they are marked."""

    def __init__(self, control_texts: tuple[str, ...]) -> None:
        """Take the texts that the tokenizer recognises as control tokens."""
        self._control = any_of(control_texts)
        self._any = re.compile(f"{_BEGIN}(?:{self._control.pattern}){_END}|{self._control.pattern}")

    def mark(self, value: Any) -> Any:
        """Return messages, or a part of them, in which every control token is marked, but for roles and types."""
        if isinstance(value, str):
            return self._control.sub(lambda match: f"{_BEGIN}{match[0]}{_END}", value)
        if isinstance(value, Mapping):
            return {key: part if key in ("role", "type") else self.mark(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.mark(part) for part in value]
        return value

    @staticmethod
    def has_marks(text: bytes) -> bool:
        """Return whether a prompt in UTF-8 has marked control tokens."""
        return _BEGIN.encode() in text

    def tokenize(self, text: str, add_bos: bool, tokenize: Callable[[bytes, bool, bool], list[int]]) -> list[int]:
        """Tokenise a prompt in which marked control tokens are text and others are recognised.

        `tokenize` takes a text in UTF-8, whether to add a BOS, and whether to recognise control tokens. The text
        between two control tokens of the template is tokenised in one piece, as llama.cpp does.
        """
        tokens: list[int] = []
        done = 0  # characters of the prompt that are split into pieces
        before = piece = ""  # text with control tokens to recognise, and text after the last of these
        is_typed = False

        def end_piece() -> None:
            nonlocal before, piece, is_typed
            if is_typed:
                if before:
                    tokens.extend(tokenize(before.encode(), add_bos and not tokens, True))
                tokens.extend(tokenize(piece.encode(), add_bos and not tokens, False))
                before = ""
            else:
                before += piece
            piece, is_typed = "", False

        for match in self._any.finditer(text):
            piece += text[done : match.start()]
            done = match.end()
            if match[0].startswith(_BEGIN):
                piece += match[0][1:-1]
                is_typed = True
            else:
                end_piece()
                before += match[0]
        piece += text[done:]
        end_piece()
        if before:
            tokens.extend(tokenize(before.encode(), add_bos and not tokens, True))
        return tokens
