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
def echo_off() -> Iterator[None]:
    """Keep the terminal from showing what is typed in the middle of an answer; the next prompt shows it."""
    try:
        import termios

        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
    except (ImportError, OSError, ValueError, termios.error):
        yield
        return
    silent = list(before)
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(number, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
