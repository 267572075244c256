"""Answers in a terminal with colours: streamed as they come, then replaced by rendered Markdown.

A long answer is rendered part by part, each part before it scrolls off the screen: after that it cannot be changed.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from ..session.text_steps import Piece
from ..visible import visible
from .activity import Activity
from .display import Display
from .screen import Printable, last_boundary
from .shade import Shade, shade_of
from .wrapping import Wrapped

STYLES = {Shade.ACCEPTED: "cyan", Shade.DRAFT: "green", Shade.SLIM: "magenta", Shade.FULL: "bright_blue"}
_MAX_COPIED = 100_000  # bytes of base64 that common terminals accept in one OSC 52 sequence


class RichDisplay(Display):
    """Show answers in a terminal with a movable cursor, and render their Markdown; with NO_COLOR, without colours."""

    def __init__(self, out: Console, err: Console) -> None:
        super().__init__()
        self.can_color = not out.no_color
        self._out, self._err = out, err
        self._activity = Activity(err.file)
        self._colors = False
        self._empty = True
        self._text = ""  # the part of the answer that has not been rendered yet
        self._fixed = False  # the part cannot be replaced: it has left the screen, or its position is unknown
        self._size = (0, 0)

    def note(self, text: str) -> None:
        self._print_error(text, "dim")

    def error(self, text: str) -> None:
        self._print_error(f"error: {text}", "red")

    def _print_error(self, text: str, style: str) -> None:
        """Print a line on standard error; in a terminal, wrap it between words."""
        self.idle()
        wraps = self._err.is_terminal
        self._err.print(visible(text) if wraps else text, style=style, markup=False, emoji=False, soft_wrap=not wraps)

    def show(self, text: str) -> None:
        self.idle()
        super().show(text)

    def working(self, text: str) -> None:
        if self._err.is_terminal:
            self._activity.show(visible(text), self.width)

    def idle(self) -> None:
        self._activity.clear()

    def begin(self, *, colors: bool = False) -> None:
        self._colors = colors
        self._empty = True
        self._size = self._terminal_size()
        self._printable = Printable()
        self._rows: Wrapped[Shade] = Wrapped(self._size[0])
        self._text, self._fixed = "", False

    def push(self, pieces: Sequence[Piece]) -> None:
        self.idle()
        self._empty = self._empty and not any(piece.text for piece in pieces)
        if self._colors:
            for piece in pieces:
                self._stream(piece.text, shade_of(piece))
        else:
            self._stream("".join(piece.text for piece in pieces))

    def _stream(self, text: str, shade: Shade | None = None) -> None:
        """Show text, in the colour of a shade if one is given, and render what is about to scroll off the screen."""
        if self._terminal_size() != self._size:
            self._size = self._terminal_size()
            self._rows.resize(self._size[0])
            self._fixed = True
        text = self._printable.push(text)
        self._write_wrapped(text, shade)
        self._text += text
        if not self._colors and (self._fixed or self._rows.rows >= self._size[1] - 2):
            self._render_complete_blocks()

    def _write_wrapped(self, text: str, shade: Shade | None = None) -> None:
        for part, part_shade in self._rows.push(text, shade):
            if part_shade is None:
                self._out.file.write(part)
            else:
                self._out.print(part, end="", style=STYLES[part_shade], markup=False, emoji=False, soft_wrap=True)
        self._out.file.flush()

    def end(self, *, stopped: bool = False) -> None:
        self.idle()
        self._write_wrapped(rest := self._printable.finish())
        self._text += rest
        if not (self._empty and stopped) and (self._colors or not self._render(self._text)):
            self._out.print()
        if stopped:
            self.note("[stopped]")

    def legend(self, shares: Mapping[Shade, float]) -> None:
        parts = [Text(f"■ {shade.value} {share:.0%}", style=STYLES[shade]) for shade, share in shares.items()]
        self._err.print(Text("  ").join(parts))

    def copy(self, text: str) -> None:
        data = base64.b64encode(text.encode())
        if len(data) > _MAX_COPIED:
            raise ValueError(f"the text has {len(text)} characters; terminals take about {_MAX_COPIED * 3 // 4} bytes")
        self._out.file.write(f"\x1b]52;c;{data.decode()}\x07")  # OSC 52
        self._out.file.flush()

    @property
    def width(self) -> int:
        return self._terminal_size()[0]

    def _terminal_size(self) -> tuple[int, int]:
        size = os.get_terminal_size(sys.stdout.fileno())
        return size.columns or 80, size.lines or 24

    def _render_complete_blocks(self) -> None:
        """Render the complete blocks of a part that is about to scroll off the screen, and start the next part."""
        boundary = last_boundary(self._text)
        if boundary == 0:
            self._fixed = self._fixed or self._rows.rows >= self._size[1]
            return
        complete, rest = self._text[:boundary], self._text[boundary:]
        if not self._fixed and self._render(complete, blank=True):
            self._rows = Wrapped(self._size[0])
            self._write_wrapped(rest)
        else:
            self._rows = Wrapped(self._size[0])
            self._rows.push(rest)
        self._text, self._fixed = rest, False

    def _render(self, text: str, *, blank: bool = False) -> bool:
        """Replace the part on the screen by `text` rendered as Markdown, with a blank line after it if `blank`.

        Returns False, with the screen unchanged, if the part cannot safely be replaced or has no markup.
        """
        from .markup import rendered

        if self._fixed or not self._rows.certain or self._rows.rows > self._size[1]:
            return False
        if self._terminal_size() != self._size:
            return False
        markup = rendered(text)
        if markup is None:
            return False
        up = f"\x1b[{self._rows.rows - 1}A" if self._rows.rows > 1 else ""
        with self._out.capture() as capture:
            self._out.print(markup.markdown, crop=False)
        shown = capture.get().lstrip("\n") + ("\n" if blank else "")
        if not markup.is_whole_in(shown):
            return False
        self._out.file.write(f"\r{up}\x1b[J{shown}")
        self._out.file.flush()
        return True
