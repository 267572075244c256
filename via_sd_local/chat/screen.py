"""Text on a terminal: its printable characters, its rows, and the blocks of its Markdown. Pure functions."""

from __future__ import annotations

import re
import unicodedata

from rich.cells import cell_len

from ..visible import VisibleStream

_AMBIGUOUS = ("Cf", "Mn", "Me", "Co", "Cn")  # joiners, marks, private use, unassigned: widths differ by terminal


class Printable(VisibleStream):
    """Text in pieces without control characters but newlines: the others are made visible, tabs become four spaces."""

    def push(self, text: str) -> str:
        return super().push(text).replace("\t", " " * 4)


class ScreenRows:
    """Count the rows that text takes on a terminal of `width` columns, starting at the beginning of a row.

    Attributes:
        count: The number of rows so far.
        certain: Whether every terminal shows the characters so far in the same number of columns.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.count = 1
        self.certain = True
        self._column = 0

    def add(self, text: str) -> None:
        """Add text from `Printable`."""
        for char in text:
            if char == "\n":
                self.count += 1
                self._column = 0
                continue
            cells = cell_len(char)
            if cells == 0 or unicodedata.category(char) in _AMBIGUOUS or "\U0001f1e6" <= char <= "\U0001f1ff":
                self.certain = False
            if self._column + cells > self.width:
                self.count += 1
                self._column = 0
            self._column += cells


_FENCE = re.compile(r" {0,3}(```+|~~~+)")


def last_boundary(text: str) -> int:
    """Return the index at which the last independent block of a Markdown text begins, or 0 if there is only one block.

    A block is independent if it renders the same without the text before it: it starts unindented after a blank line,
    outside of fenced code.
    """
    boundary = position = 0
    fence: str | None = None
    blank = False
    for line in text.splitlines(keepends=True):
        match = _FENCE.match(line)
        if fence is None and blank and line.strip() and not line[0].isspace():
            boundary = position
        if match and fence is None:
            fence = match[1]
        elif match and fence is not None and match[1].startswith(fence):
            fence = None
        blank = fence is None and not line.strip()
        position += len(line)
    return boundary
