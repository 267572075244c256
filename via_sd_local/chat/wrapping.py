"""Words wrapped while they come, so that the rows of a text on a terminal are known: pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Generic, TypeVar

from rich.cells import cell_len

Tag = TypeVar("Tag")
FENCE = re.compile(r" {0,3}(```+|~~~+)")
_ZWJ = "\u200d"
_CLEAR_ROW = "\r\x1b[K"


class Wrapped(Generic[Tag]):
    """Text that is written on a terminal of `width` columns from the beginning of a row on.

    Prose is broken between words before a row is full, even if the terminal shows every character as wide as any
    terminal does; so nothing depends on the width that this one gives to emoji, flags and combining marks. The lines of
    fenced code are left to the terminal, so that they can be copied whole.

    Attributes:
        rows: The number of rows so far.
        certain: Whether this number is the same on every terminal.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows = 1
        self.certain = True
        self._row: list[tuple[str, Tag | None]] = []  # what the present row shows, as far as it is known
        self._columns = 0
        self._line = ""  # the line of the text so far, which may take several rows
        self._fence: str | None = None
        self._varies = False  # whether terminals differ in the width of this line

    def push(self, text: str, tag: Tag | None = None) -> list[tuple[str, Tag | None]]:
        """Add text without control characters but newlines, and return what to write: texts and their tags.

        `tag` stands for the looks of the text. A word that outgrows its row is moved to the next one: then the row is
        cleared and written again.
        """
        written: list[tuple[str, Tag | None]] = []
        for char in text:
            if char == "\n":
                self._end_line()
                written.append(("\n", None))
            elif self._fence is not None:
                self._add_code(char)
                written.append((char, tag))
            else:
                self._line += char
                written += self._add_word_part(char, tag)
        return _joined(written)

    def resize(self, width: int) -> None:
        """Go on with another width; what the terminal made of the present row is unknown."""
        self.width = width
        self._row, self._columns = [], self._columns % width

    def _end_line(self) -> None:
        fence = FENCE.match(self._line)
        if fence and self._fence is None:
            self._fence = fence[1]
        elif fence and self._fence is not None and fence[1].startswith(self._fence):
            self._fence = None
        self.rows += 1
        self._row, self._columns, self._line, self._varies = [], 0, "", False

    def _add_code(self, char: str) -> None:
        self._line += char
        self._varies = self._varies or _width(char) != cell_len(char)
        cells = cell_len(char)
        if self._columns + cells > self.width:
            self.rows += 1
            self._columns = 0
        self._columns += cells
        if self._varies and sum(map(_width, self._line)) > self.width:
            self.certain = False

    def _add_word_part(self, char: str, tag: Tag | None) -> list[tuple[str, Tag | None]]:
        width = _width(char)
        if char == " " and self._columns == 0 and self._line.strip():
            return []  # more spaces where a row has been broken
        if self._columns + width <= self.width:
            self._row.append((char, tag))
            self._columns += width
            return [(char, tag)]
        self.rows += 1
        if char == " ":
            self._row, self._columns = [], 0
            return [("\n", None)]
        at = self._break(char)
        kept, moved = self._row[:at], [*self._row[at:], (char, tag)]
        self._row = moved
        self._columns = sum(_width(moved_char) for moved_char, _ in moved)
        if at == len(kept) and len(moved) == 1:
            return [("\n", None), (char, tag)]
        while kept and kept[-1][0] == " ":
            kept.pop()
        return [(_CLEAR_ROW, None), *kept, ("\n", None), *moved]

    def _break(self, char: str) -> int:
        """Return the index in the row at which its last word begins; where nothing can stay, that of `char`."""
        text = "".join(shown for shown, _ in self._row)
        space = text.rfind(" ") + 1
        wide = next((at for at in range(len(text), space, -1) if _breaks(text[at - 1], (text + char)[at])), None)
        at = wide if wide is not None else space
        if text[:at].strip():
            return at
        at = len(text)
        while at > 1 and (_extends((text + char)[at]) or text[at - 1] == _ZWJ):
            at -= 1
        return at


def wrap_rows(line: str, width: int) -> list[str]:
    """Return the rows of one line of prose on `width` columns."""
    rows = [""]
    for written, _ in Wrapped[None](width).push(line):
        for part in re.split(rf"({re.escape(_CLEAR_ROW)}|\n)", written):
            if part == "\n":
                rows.append("")
            else:
                rows[-1] = "" if part == _CLEAR_ROW else rows[-1] + part
    return rows


def _breaks(before: str, after: str) -> bool:
    """Return whether a row may end between two characters without a space: at wide ones such as ideographs."""
    if before == _ZWJ or _extends(after) or (_is_flag(before) and _is_flag(after)):
        return False
    return cell_len(before) == 2 or cell_len(after) == 2


def _width(char: str) -> int:
    """Return the largest number of columns in which terminals show a character."""
    if _extends(char):
        return max(1, cell_len(char))
    return 2 if _is_flag(char) or unicodedata.category(char) in ("Co", "Cn") else cell_len(char)


def _extends(char: str) -> bool:
    """Return whether a character changes or joins the one before it, as accents, joiners and variant selectors do."""
    return unicodedata.category(char) in ("Cf", "Mn", "Me") or "\U0001f3fb" <= char <= "\U0001f3ff"


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _joined(parts: list[tuple[str, Tag | None]]) -> list[tuple[str, Tag | None]]:
    """Join neighbours of the same looks."""
    runs: list[tuple[str, Tag | None]] = []
    for text, tag in parts:
        if runs and runs[-1][1] == tag:
            runs[-1] = (runs[-1][0] + text, tag)
        else:
            runs.append((text, tag))
    return runs
