"""A line on a terminal that says what is being done, and is gone when it is done."""

from __future__ import annotations

import threading
import time
from typing import IO

from rich.cells import set_cell_size

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PERIOD = 0.1  # seconds between two frames
_CLEAR = "\r\x1b[K"


class Activity:
    """The line, at the cursor; it must begin at the start of a row, and `clear` leaves the cursor there."""

    def __init__(self, terminal: IO[str]) -> None:
        self._terminal = terminal
        self._line = ""
        self._spinning: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def show(self, text: str, width: int) -> None:
        """Show a text that `visible` has returned, cut to `width` columns, in place of the one before.

        A thread turns a spinner and counts the seconds.
        """
        self.clear()
        self._line = text
        self._draw(_FRAMES[0], "", width)
        self._spinning = threading.Event()
        self._thread = threading.Thread(target=self._spin, args=(self._spinning, width), daemon=True)
        self._thread.start()

    def clear(self) -> None:
        """Remove the line, if there is one."""
        if self._spinning is not None and self._thread is not None:
            self._spinning.set()
            self._thread.join()
            self._spinning = self._thread = None
        if self._line:
            self._line = ""
            self._terminal.write(_CLEAR)
            self._terminal.flush()

    def _spin(self, stopped: threading.Event, width: int) -> None:
        started = time.monotonic()
        number = 0
        while not stopped.wait(_PERIOD):
            number += 1
            seconds = time.monotonic() - started
            self._draw(_FRAMES[number % len(_FRAMES)], f" {seconds:.0f} s" if seconds >= 1 else "", width)

    def _draw(self, frame: str, seconds: str, width: int) -> None:
        line = f"{frame} {self._line} …{seconds}"
        self._terminal.write(f"{_CLEAR}{set_cell_size(line, width - 1).rstrip()}")
        self._terminal.flush()
