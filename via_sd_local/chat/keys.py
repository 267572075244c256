"""Lines typed in a terminal without a movable cursor, of any length.

The terminal's own line editing cuts a line after 4095 bytes; so it is turned off, and what users know of it is done
here: backspace, Ctrl-U, Ctrl-W, Ctrl-D and Ctrl-C.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import sys
from collections.abc import Iterator

from rich.cells import cell_len

from ..visible import unguarded, visible
from .terminal import without

_BACKSPACE, _ERASE_LINE, _ERASE_WORD = ("\b", "\x7f"), "\x15", "\x17"
_END = ("\x04", "\x00")  # Ctrl-D, also as Linux stores one that was typed before the line editing was turned off


class Discarded(KeyboardInterrupt):
    """Ctrl-C discarded a message that was being typed."""


class Keys:
    """What is typed on standard input."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._typed = ""  # read from the terminal, but not yet part of a line
        self._ended = False
        self._edits = False

    def waiting(self, seconds: float) -> bool:
        """Return whether something has been typed, or is within `seconds`."""
        return bool(self._typed or self._ended or select.select([sys.stdin], [], [], seconds)[0])

    @contextlib.contextmanager
    def unlimited_lines(self) -> Iterator[None]:
        """Turn the terminal's own line editing off while the block runs."""
        with without("ICANON", "ECHO") as self._edits:
            try:
                yield
            finally:
                self._edits = False

    def read_line(self) -> str:
        """Return the next line with its newline; without one at the end of input.

        Raises Discarded if Ctrl-C discarded a line, and KeyboardInterrupt for Ctrl-C where nothing had been typed.
        """
        line: list[str] = []
        try:
            while self._next_chars():
                end = self._take(line)
                if end is not None:
                    return "".join(line) + end
        except KeyboardInterrupt:
            self._typed = ""
            self._echo("^C\n")
            raise (Discarded if line else KeyboardInterrupt) from None
        return "".join(line)

    def _next_chars(self) -> bool:
        """Read from the terminal if nothing is left; return False at the end of input."""
        while not self._typed and not self._ended:
            data = os.read(sys.stdin.fileno(), 4096)
            self._ended = not data
            self._typed = self._decoder.decode(data, final=not data)
        return bool(self._typed)

    def _take(self, line: list[str]) -> str | None:
        """Move what has been typed to the line; return what ends it: a newline, or nothing for Ctrl-D; else None."""
        shown = ""
        for at, char in enumerate(self._typed):
            if char in "\r\n" or (char in _END and not line):
                self._typed = self._typed[at + 1 :]
                self._ended = self._ended or char in _END
                self._echo(shown + ("" if char in _END else "\n"))
                return "" if char in _END else "\n"
            if not self._edits or char not in (*_BACKSPACE, _ERASE_LINE, _ERASE_WORD, *_END):
                line.append(char)
                shown += visible(char)
            elif char not in _END:  # in a line, Ctrl-D only hands it over
                self._echo(shown)
                shown = ""
                self._erase(line, char)
        self._typed = ""
        self._echo(shown)
        return None

    def _erase(self, line: list[str], key: str) -> None:
        """Remove the last character, word, or all of the line, on the terminal as well."""
        left = 0 if key == _ERASE_LINE else len(line) - 1
        if key == _ERASE_WORD:
            left = len("".join(line).rstrip().rpartition(" ")[0])
            left += left > 0  # the space before the word stays
        columns = cell_len(visible("".join(line[max(left, 0) :])))
        del line[max(left, 0) :]
        self._echo("\b \b" * columns)

    def _echo(self, text: str) -> None:
        """Show on the terminal what has been typed, if its own echo is off."""
        terminal = next((unguarded(stream) for stream in (sys.stdout, sys.stderr) if stream.isatty()), None)
        if self._edits and terminal is not None and text:
            terminal.write(text)
            terminal.flush()
