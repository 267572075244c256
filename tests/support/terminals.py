"""The chat in a terminal: a pseudo-terminal whose other end is an emulator, so that tests see what a user sees."""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pexpect
import pyte

TIMEOUT = 300  # seconds without a change on the screen: only a program that hangs takes so long
WIDTH, HEIGHT = 100, 60


class _Screen(pyte.HistoryScreen):  # type: ignore[misc]
    """A screen that answers the questions that programs ask a terminal."""

    def __init__(self, columns: int, lines: int, answer: Callable[[str], Any]) -> None:
        super().__init__(columns, lines, history=5000)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data)


def _hear_signals() -> None:
    """Undo in the child what nohup, or a start in the background, has done to this program and would be inherited."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Terminal:
    """A running program and the screen that it writes to."""

    def __init__(
        self,
        command: Sequence[object],
        env: Mapping[str, str | None],
        *,
        columns: int = WIDTH,
        lines: int = HEIGHT,
    ) -> None:
        """Start it; `env` is added to the environment, None removes a variable."""
        whole: dict[str, str] = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
        for name in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "COLORTERM"):
            whole.pop(name, None)
        for variable, value in env.items():
            whole.pop(variable, None)
            if value is not None:
                whole[variable] = value
        arguments = [str(part) for part in command]
        self.child = pexpect.spawn(
            arguments[0],
            arguments[1:],
            timeout=TIMEOUT,
            dimensions=(lines, columns),
            env=whole,
            echo=True,
            preexec_fn=_hear_signals,
        )
        self.child.delaybeforesend = None
        self.screen = _Screen(columns, lines, self.send)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""  # all that the program wrote

    def send(self, text: str) -> None:
        """Type; Enter is \\r."""
        self.child.send(text)

    def press_ctrl_c(self) -> None:
        self.child.send("\x03")

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        self.child.setwinsize(lines, columns)

    @property
    def rows(self) -> list[str]:
        """The rows on the screen, without the spaces at their ends, up to the last one that is not empty."""
        rows = [row.rstrip() for row in self.screen.display]
        while rows and not rows[-1]:
            del rows[-1]
        return rows

    @property
    def all_rows(self) -> list[str]:
        """The same with those that have left the screen before them."""
        gone = ["".join(row[x].data for x in range(self.screen.columns)).rstrip() for row in self.screen.history.top]
        return gone + self.rows

    @property
    def text(self) -> str:
        """What is on the screen and has left it, as one text."""
        return "\n".join(self.all_rows)

    def cells(self, text: str) -> list[Any]:
        """The cells (with `fg`, `bold`, …) of the last place on the screen where `text` is on one row."""
        for number in reversed(range(self.screen.lines)):
            at = self.screen.display[number].rfind(text)
            if at >= 0:
                return [self.screen.buffer[number][x] for x in range(at, at + len(text))]
        raise AssertionError(f"{text!r} is not on the screen:\n{self.text}")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Read what the program writes until the condition holds."""
        while not condition():
            try:
                data = self.child.read_nonblocking(4096, timeout=TIMEOUT)
            except pexpect.TIMEOUT:
                raise AssertionError(f"no {what} on the screen:\n{self.text}") from None
            except pexpect.EOF:
                raise AssertionError(f"the program has ended, without {what}:\n{self.text}") from None
            self.written += data
            self._stream.feed(data)

    def wait_for(self, text: str, times: int = 1) -> None:
        """Until the text has been written so many times, wherever it is now."""
        self.wait(lambda: self.text.count(text) >= times, repr(text))

    def wait_for_prompt(self) -> None:
        """Until the cursor waits in an empty prompt."""

        def at_prompt() -> bool:
            cursor, row = self.screen.cursor, self.screen.display[self.screen.cursor.y]
            return cursor.x == 2 and row.rstrip() == ">"

        self.wait(at_prompt, "empty prompt")

    def wait_until_typed(self, size: int) -> None:
        """Until so many bytes of whole lines wait in the terminal, which the kernel hands over some time after `send`.

        Only while the program reads whole lines and nothing of them yet, as during a command.
        """
        libc = ctypes.CDLL(None)
        libc.ptsname.restype = ctypes.c_char_p
        slave = os.open(libc.ptsname(self.child.child_fd), os.O_RDONLY | os.O_NOCTTY)
        try:
            waiting = array.array("i", [0])
            deadline = time.monotonic() + TIMEOUT
            while waiting[0] < size:
                assert time.monotonic() < deadline, f"only {waiting[0]} of {size} bytes have arrived"
                time.sleep(0.001)
                fcntl.ioctl(slave, termios.FIONREAD, waiting)
        finally:
            os.close(slave)

    def ask(self, text: str) -> list[str]:
        """Type a line and wait for the next prompt; returns the rows in between."""
        before = len(self.all_rows)
        self.send(text)
        self.wait(lambda: self.screen.display[self.screen.cursor.y].rstrip() == f"> {text.rstrip()}"[: 10**6], text)
        self.send("\r")
        self.wait(lambda: len(self.all_rows) > before, "answer")
        self.wait_for_prompt()
        return self.all_rows[before:-1]

    def status(self) -> int:
        """Wait for the end; returns the exit status, or minus the signal that ended the program."""
        while True:
            try:
                data = self.child.read_nonblocking(4096, timeout=TIMEOUT)
            except pexpect.EOF:
                break
            self.written += data
            self._stream.feed(data)
        self.child.close()
        return int(self.child.exitstatus) if self.child.exitstatus is not None else -int(self.child.signalstatus)

    def close(self) -> None:
        self.child.close(force=True)


def chat_command(verifier: Path | str, *options: object) -> list[object]:
    """The command line of a chat with one thread."""
    return [sys.executable, "-m", "via_sd_local.chat", "--verifier", verifier, "--threads", 1, *options]
