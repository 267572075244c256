"""What the terminal can do, and its echo."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


def no_color() -> bool:
    """Return whether the user wants no colours in any program (no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def moves_cursor() -> bool:
    """Return whether standard output is a terminal whose cursor a program can move."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


@contextlib.contextmanager
def without(*modes: str) -> Iterator[bool]:
    """Turn local modes of the terminal off while the block runs, named as in termios, e.g. `ECHO`.

    Yields whether standard input is a terminal whose modes could be changed.
    """
    try:
        import termios

        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
    except (ImportError, OSError, ValueError, termios.error):
        yield False
        return
    changed = [*before[:6], list(before[6])]
    for mode in modes:
        changed[3] &= ~getattr(termios, mode)
    if "ICANON" in modes:  # a read then returns as soon as there is a byte
        changed[6][termios.VMIN], changed[6][termios.VTIME] = 1, 0
    termios.tcsetattr(number, termios.TCSADRAIN, changed)
    try:
        yield True
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def echo_off() -> contextlib.AbstractContextManager[bool]:
    """Keep the terminal from showing what is typed in the middle of an answer; the next prompt shows it."""
    return without("ECHO")
