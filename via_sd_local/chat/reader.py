"""Readers of the user's messages, and the one for terminals without line editing."""

from __future__ import annotations

import select
import sys
from typing import Protocol

PROMPT = "> "
_PASTE = 0.03  # seconds; lines that arrive within this time of each other were pasted


class Discarded(KeyboardInterrupt):
    """Ctrl-C discarded a message that was being typed."""


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
        self._ended = False

    def read(self) -> str:
        if self._ended:
            raise EOFError
        typed_ahead = _has_input(0)
        print(PROMPT, end="", file=sys.stdout if sys.stdout.isatty() else sys.stderr, flush=True)
        lines = [sys.stdin.readline()]
        while not typed_ahead and lines[-1].endswith("\n") and _has_input(_PASTE):
            lines.append(sys.stdin.readline())
        self._ended = not lines[-1].endswith("\n")
        text = "".join(lines)
        if not text:
            raise EOFError
        return text


def _has_input(seconds: float) -> bool:
    """Return whether standard input can be read within `seconds`."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])
