"""Where the user's messages come from, in a terminal."""

from __future__ import annotations

import select
import sys
from typing import Protocol

PROMPT = "> "
_PASTE = 0.03  # seconds within which the lines of a paste follow each other


class Discarded(KeyboardInterrupt):
    """Ctrl-C on a line that was being written."""


class Reader(Protocol):
    """Asks for messages."""

    def read(self) -> str:
        """The next message; EOFError at the end of input, KeyboardInterrupt or Discarded at Ctrl-C."""
        ...


class LineReader:
    """Plain lines; those that arrive together are one message, unless they were typed before it was asked for."""

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
    """Whether there is something to read, now or within that time."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])
