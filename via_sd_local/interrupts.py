"""Ctrl-C during native calls: a SIGINT is held until the end of a section, since a callback from C would lose it.

Python runs signal handlers only when the main thread returns from a native call. For calls that can stop inside, a
thread learns of the signal at once, from Python's wakeup file, and raises a flag in memory, which native code can read
without the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any


class _PendingInterrupt:
    """The SIGINTs that arrive inside `interrupts_after`, and the handler that they are for."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler
        self.frames: list[FrameType | None] = []
        self.ends_the_pass = handler is signal.default_int_handler  # another handler may want to go on

    def hold(self, _number: int, frame: FrameType | None) -> None:
        self.frames.append(frame)
        _listener.raise_flag()


class _Listener:
    """A thread that raises `flag` as soon as a SIGINT arrives while somebody is `listening`."""

    def __init__(self) -> None:
        self.flag = ctypes.create_string_buffer(2)  # a C string: empty, or one byte once a SIGINT has arrived
        self._thread: threading.Thread | None = None
        self._written = -1  # the end of the pipe that Python writes signal numbers into
        self._others = -1  # another library's wakeup file (an event loop's), which gets what arrives meanwhile

    def raise_flag(self) -> None:
        self.flag.value = b"\1"

    def lower_flag(self) -> None:
        self.flag.value = b""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Raise the flag if a SIGINT arrives inside the section; for the main thread."""
        if self._thread is None or not self._thread.is_alive():  # a child process has no thread yet
            self._start()
        self.lower_flag()
        if interrupted():
            self.raise_flag()
        self._others = before = signal.set_wakeup_fd(self._written, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)

    def _start(self) -> None:
        read, self._written = os.pipe()
        os.set_blocking(self._written, False)
        self._thread = threading.Thread(target=self._listen, args=(read,), name="via-sd-interrupts", daemon=True)
        self._thread.start()

    def _listen(self, file: int) -> None:
        while numbers := os.read(file, 64):
            if signal.SIGINT in numbers:
                self.raise_flag()
            if self._others >= 0:
                with suppress(OSError):  # it may be closed by now, or a socket that is no file (Windows)
                    os.write(self._others, numbers)


_listener = _Listener()
_pending: _PendingInterrupt | None = None


@contextmanager
def interrupts_after() -> Iterator[None]:
    """Handle a SIGINT that arrives inside the section only at its end.

    In a nested section that is the end of the outermost one. Outside the main thread, and where SIGINT has no Python
    handler, the section does nothing.
    """
    global _pending
    if _pending is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):  # ignored, or the default action of the system
        yield
        return
    pending = _PendingInterrupt(before)
    signal.signal(signal.SIGINT, pending.hold)
    _pending = pending
    try:
        yield
    finally:
        _pending = None
        signal.signal(signal.SIGINT, before)
    if pending.frames:
        before(signal.SIGINT, pending.frames[0])


def interrupted() -> bool:
    """Return whether a SIGINT is held that will raise KeyboardInterrupt at the end of the section."""
    return _pending is not None and _pending.ends_the_pass and bool(_pending.frames)


def can_stop_inside() -> bool:
    """Return whether a SIGINT should end a native call in this thread early."""
    return _pending is not None and _pending.ends_the_pass and threading.current_thread() is threading.main_thread()


def stop_flag() -> ctypes.Array[ctypes.c_char]:
    """Return the flag that `stopping_inside` raises: a C string, which is empty until a SIGINT arrives."""
    return _listener.flag


def stopping_inside() -> AbstractContextManager[None]:
    """Return a section that lowers `stop_flag` at its start, and raises it as soon as a SIGINT arrives.

    The flag may be raised late, for a SIGINT that was handled before: `interrupted` says whether one is held.
    """
    return _listener.listening()
