"""Text on a terminal, and how much of the screen it takes: pure functions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len

_TAB = "    "
_UNSURE = ("Cf", "Mn", "Me", "Co", "Cn")  # joiners, marks, private or unknown: terminals differ in their widths


def printable(text: str) -> str:
    """The text without control characters, which a model could write and a terminal would obey; newlines stay."""
    text = text.replace("\r\n", "\n").replace("\t", _TAB)
    return "".join(char for char in text if char == "\n" or unicodedata.category(char) != "Cc")


class ScreenRows:
    """Counts the rows that text takes on a terminal of `width` columns, from the beginning of a row."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.count = 1
        self.sure = True  # every terminal shows these characters in the same cells
        self._column = 0

    def add(self, text: str) -> None:
        """More text, `printable`, follows."""
        for char in text:
            if char == "\n":
                self.count += 1
                self._column = 0
                continue
            cells = cell_len(char)
            if cells == 0 or unicodedata.category(char) in _UNSURE or "\U0001f1e6" <= char <= "\U0001f1ff":
                self.sure = False
            if self._column + cells > self.width:
                self.count += 1
                self._column = 0
            self._column += cells


_FENCE = re.compile(r" {0,3}(```+|~~~+)")


def last_boundary(text: str) -> int:
    """Where the last block of a Markdown text begins that does not depend on those before it; 0 if there is none."""
    boundary = position = 0
    fence: str | None = None
    blank = False
    for line in _lines(text):
        found = _FENCE.match(line)
        if fence is None and blank and line.strip() and not line[0].isspace():
            boundary = position
        if found and fence is None:
            fence = found[1]
        elif found and fence is not None and found[1].startswith(fence):
            fence = None
        blank = fence is None and not line.strip()
        position += len(line)
    return boundary


def _lines(text: str) -> Iterable[str]:
    return text.splitlines(keepends=True)
