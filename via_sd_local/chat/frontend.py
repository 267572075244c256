"""The choice of the display and the reader that suit the terminal."""

from __future__ import annotations

import sys

from ..visible import unguarded
from .display import Display
from .reader import LineReader, Reader
from .terminal import moves_cursor


def make_display() -> Display:
    """Return a display for standard output: plain text in a pipe and with TERM=dumb."""
    if not moves_cursor():
        return Display()
    from rich.console import Console

    from .rich_display import RichDisplay

    return RichDisplay(
        Console(file=unguarded(sys.stdout), highlight=False), Console(file=unguarded(sys.stderr), highlight=False)
    )


def make_reader() -> Reader:
    """Return a reader with line editing, history and completion where the terminal allows it, else of plain lines."""
    if not moves_cursor():
        return LineReader()
    from .prompt import PromptReader

    return PromptReader()
