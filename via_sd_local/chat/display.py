"""What the chat shows: answers on standard output, everything else on standard error."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence

from ..session.text_steps import Piece
from .shade import Shade


class Display:
    """Show answers as plain text; the base of displays that do more."""

    can_color = False

    def note(self, text: str) -> None:
        """Show a remark about the conversation on standard error."""
        print(text, file=sys.stderr)

    def error(self, text: str) -> None:
        """Show why something could not be done on standard error."""
        print(f"error: {text}", file=sys.stderr)

    def show(self, text: str) -> None:
        """Show the output of a command."""
        print(text, flush=True)

    def working(self, text: str) -> None:
        """Show what is being done, until something else is shown; only on a terminal."""

    def idle(self) -> None:
        """Show no longer what is being done."""

    def begin(self, *, colors: bool = False) -> None:
        """Begin an answer; with `colors`, show each token in the colour of its shade."""

    def push(self, pieces: Sequence[Piece]) -> None:
        """Show the next pieces of the answer."""
        self._write("".join(piece.text for piece in pieces))

    def end(self, *, stopped: bool = False) -> None:
        """End the answer, which is complete or, with `stopped`, was interrupted."""
        print(" [stopped]" if stopped else "", flush=True)

    def legend(self, shares: Mapping[Shade, float]) -> None:
        """Show which colour stands for which shade, and its share of the last answer's tokens."""

    def copy(self, text: str) -> None:
        """Put text on the clipboard; ValueError where there is no terminal that could."""
        raise ValueError("there is no clipboard here: TERM is dumb, or standard output is not a terminal")

    @property
    def width(self) -> int:
        """The number of columns available for output."""
        return shutil.get_terminal_size().columns

    def _write(self, text: str) -> None:
        print(text, end="", flush=True)
