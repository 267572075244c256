"""The one way of text to a terminal: control characters, which a terminal would obey, are written visibly.

A model, a file, a paste or a catalogue can contain escape sequences that set the window title, clear the screen or hide
text. `visible_terminals` stands before `sys.stdout` and `sys.stderr` of every command, so that whatever is printed is
harmless; only code that draws (rich, prompt_toolkit) asks for the terminal itself (`unguarded`) and makes the text that
it draws visible first. A pipe or a file receives the characters as they are.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO, cast

_NAMES = {code: f"^{chr(code ^ 64)}" for code in (*range(32), 127)} | {
    code: f"<{code:02x}>" for code in range(128, 160)
}
del _NAMES[ord("\t")], _NAMES[ord("\n")]


def visible(text: str) -> str:
    """Return text with control characters in caret notation (`^[` is escape) or as `<9b>`.

    Newlines and tabs are kept, and a carriage return before a newline is dropped.
    """
    return text.replace("\r\n", "\n").translate(_NAMES)


class VisibleStream:
    """`visible` for text that comes in pieces: a carriage return waits for the piece after it."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        """Add text, and return what can be shown now."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        return visible(text[: len(text) - len(self._held)])

    def finish(self) -> str:
        """Return the rest at the end of the text."""
        held, self._held = self._held, ""
        return visible(held)


@contextmanager
def visible_terminals() -> Iterator[None]:
    """Make all text visible that the block prints on standard output and standard error where they are terminals."""
    before = sys.stdout, sys.stderr
    guards = [_Guard(stream) if stream is not None and stream.isatty() else stream for stream in before]
    sys.stdout, sys.stderr = cast("list[TextIO]", guards)
    try:
        yield
    finally:
        for guard in guards:
            if isinstance(guard, _Guard):
                guard.finish()
        sys.stdout, sys.stderr = before


def unguarded(stream: TextIO) -> TextIO:
    """Return the terminal behind a stream, for code that writes escape sequences of its own."""
    return stream.terminal if isinstance(stream, _Guard) else stream


class _Guard(io.TextIOBase):
    """A text stream in front of a terminal's."""

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal
        self._visible = VisibleStream()

    def write(self, text: str) -> int:
        self.terminal.write(self._visible.push(text))
        return len(text)

    def flush(self) -> None:
        self.terminal.flush()

    def finish(self) -> None:
        """Write what was held back."""
        rest = self._visible.finish()
        if rest:
            self.terminal.write(rest)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.terminal.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.terminal.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.terminal.errors
