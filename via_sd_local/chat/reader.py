"""Readers of the user's messages, and the one for terminals without line editing."""

from __future__ import annotations

import sys
from typing import Protocol

from .keys import Discarded, Keys

PROMPT = "> "
__all__ = ["PROMPT", "Discarded", "LineReader", "Reader"]
_PASTE = 0.03  # seconds; lines that arrive within this time of each other were pasted


class Reader(Protocol):
    """Prompts the user for messages."""

    def read(self) -> str:
        """Return the next message.

        Raises EOFError at the end of input, Discarded if Ctrl-C discarded a message, and KeyboardInterrupt for Ctrl-C
        at an empty prompt.
        """
        ...


class LineReader:
    """Read plain lines; lines that arrive together are one message, unless they were typed before the prompt."""

    def __init__(self) -> None:
        self._keys = Keys()

    def read(self) -> str:
        typed_ahead = self._keys.waiting(0)
        with self._keys.unlimited_lines():
            print(PROMPT, end="", file=sys.stdout if sys.stdout.isatty() else sys.stderr, flush=True)
            lines = [self._keys.read_line()]
            while not typed_ahead and lines[-1].endswith("\n") and self._keys.waiting(_PASTE):
                lines.append(self._keys.read_line())
        text = "".join(lines)
        if not text:
            raise EOFError
        return text
