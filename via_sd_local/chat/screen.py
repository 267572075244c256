"""Text for a terminal: its printable characters, and the blocks of its Markdown. Pure."""

from __future__ import annotations

from ..visible import VisibleStream
from .wrapping import FENCE


class Printable(VisibleStream):
    """Text in pieces without control characters but newlines: the others are made visible, tabs become four spaces."""

    def push(self, text: str) -> str:
        return super().push(text).replace("\t", " " * 4)


def last_boundary(text: str) -> int:
    """Return the index at which the last independent block of a Markdown text begins, or 0 if there is only one block.

    A block is independent if it renders the same without the text before it: it starts unindented after a blank line,
    outside of fenced code.
    """
    boundary = position = 0
    fence: str | None = None
    blank = False
    for line in text.splitlines(keepends=True):
        match = FENCE.match(line)
        if fence is None and blank and line.strip() and not line[0].isspace():
            boundary = position
        if match and fence is None:
            fence = match[1]
        elif match and fence is not None and match[1].startswith(fence):
            fence = None
        blank = fence is None and not line.strip()
        position += len(line)
    return boundary
