"""What the chat shows: answers on standard output, all the rest on standard error.

In a terminal that can, an answer is shown as it comes, and as rendered Markdown in its place once it is complete. A
long one is rendered part by part, before a part leaves the screen: what has left it cannot be changed any more.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..engine.generation import Tier
from .dialogue import Piece

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {Tier.DRAFT: "green", Tier.SLIM: "magenta", Tier.FULL: "bright_blue"}


def make_display() -> Display:
    """The display for standard output as it is: plain in a pipe, with TERM=dumb, and with NO_COLOR."""
    if not is_capable():
        return Display(raw=not sys.stdout.isatty())
    from rich.console import Console

    return RichDisplay(Console(highlight=False), Console(stderr=True, highlight=False))


def is_capable() -> bool:
    """Whether standard output is a terminal that moves its cursor and shows colours, and colours are wanted."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown") and not no_color()


def no_color() -> bool:
    """Whether the user wants no colours in any program (no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


class Display:
    """Plain text."""

    can_color = False

    def __init__(self, *, raw: bool = False) -> None:
        """`raw`: pass control characters on, to a program."""
        self._raw = raw

    def note(self, text: str) -> None:
        """Something about the conversation."""
        print(text, file=sys.stderr)

    def error(self, text: str) -> None:
        """What could not be done."""
        print(f"error: {text}", file=sys.stderr)

    def show(self, text: str) -> None:
        """What a command was asked for."""
        print(text, flush=True)

    def begin(self, *, colors: bool = False) -> None:
        """An answer begins; `colors`: its tokens in those of their tiers."""

    def push(self, pieces: Sequence[Piece]) -> None:
        """More of the answer."""
        self._write("".join(piece.text for piece in pieces))

    def end(self, *, stopped: bool = False) -> None:
        """The answer is complete, or was stopped."""
        print(" [stopped]" if stopped else "", flush=True)

    def legend(self, shares: Mapping[Tier, float]) -> None:
        """Which colour is which tier's, and what part of the last answer each decided."""

    @property
    def width(self) -> int:
        """Columns for what is shown."""
        return shutil.get_terminal_size().columns

    def _write(self, text: str) -> None:
        if not self._raw:
            from .screen import printable

            text = printable(text)
        print(text, end="", flush=True)


class RichDisplay(Display):
    """A terminal with colours and a cursor that moves."""

    can_color = True

    def __init__(self, out: Console, err: Console) -> None:
        super().__init__()
        self._out, self._err = out, err
        self._colors = False
        self._empty = True
        self._text = ""  # of the part that may still be rendered
        self._hopeless = False  # the part cannot be replaced: it has left the screen, or its place is not known
        self._size = (0, 0)

    def note(self, text: str) -> None:
        self._say(text, "dim")

    def error(self, text: str) -> None:
        self._say(f"error: {text}", "red")

    def _say(self, text: str, style: str) -> None:
        """On standard error; in a terminal, lines break between words."""
        wraps = self._err.is_terminal
        self._err.print(text, style=style, markup=False, emoji=False, soft_wrap=not wraps)

    def begin(self, *, colors: bool = False) -> None:
        from .screen import ScreenRows

        self._colors = colors
        self._empty = True
        self._size = self._terminal_size()
        self._text, self._rows, self._hopeless = "", ScreenRows(self._size[0]), False

    def push(self, pieces: Sequence[Piece]) -> None:
        from .screen import printable

        self._empty = self._empty and not any(piece.text for piece in pieces)
        if self._colors:
            for piece in pieces:
                self._out.print(
                    printable(piece.text), end="", style=STYLES[piece.tier], markup=False, emoji=False, soft_wrap=True
                )
            return
        text = printable("".join(piece.text for piece in pieces))
        self._write(text)
        self._text += text
        self._rows.add(text)
        if self._terminal_size() != self._size:
            self._size = self._terminal_size()
            self._hopeless = True
        if self._hopeless or self._rows.count >= self._size[1] - 2:
            self._render_whole_blocks()

    def end(self, *, stopped: bool = False) -> None:
        if not (self._empty and stopped) and (self._colors or not self._render(self._text)):
            self._out.print()
        if stopped:
            self.note("[stopped]")

    def legend(self, shares: Mapping[Tier, float]) -> None:
        from rich.text import Text

        names = [f"■ {tier.value}" + (f" {shares[tier]:.0%}" if shares else "") for tier in Tier]
        parts = [Text(name, style=STYLES[tier]) for name, tier in zip(names, Tier, strict=True)]
        self._err.print(Text("  ").join(parts))

    @property
    def width(self) -> int:
        return self._terminal_size()[0]

    def _terminal_size(self) -> tuple[int, int]:
        size = os.get_terminal_size(sys.stdout.fileno())
        return size.columns or 80, size.lines or 24

    def _render_whole_blocks(self) -> None:
        """Render what is complete of a part that is about to leave the screen, and begin another part after it."""
        from .screen import ScreenRows, last_boundary

        boundary = last_boundary(self._text)
        if boundary == 0:
            self._hopeless = self._hopeless or self._rows.count >= self._size[1]
            return
        done, rest = self._text[:boundary], self._text[boundary:]
        if not self._hopeless and self._render(done, blank=True):
            self._write(rest)
        self._text, self._rows, self._hopeless = rest, ScreenRows(self._size[0]), False
        self._rows.add(rest)

    def _render(self, text: str, *, blank: bool = False) -> bool:
        """Replace the part on the screen by `text`, rendered; False, and nothing done, where it is better left."""
        from .markup import rendered

        if self._hopeless or not self._rows.sure or self._rows.count > self._size[1]:
            return False
        if self._terminal_size() != self._size:
            return False
        markdown = rendered(text)
        if markdown is None:
            return False
        up = f"\x1b[{self._rows.count - 1}A" if self._rows.count > 1 else ""
        with self._out.capture() as capture:
            self._out.print(markdown)
        shown = capture.get().lstrip("\n") + ("\n" if blank else "")
        self._out.file.write(f"\r{up}\x1b[J{shown}")
        self._out.file.flush()
        return True
