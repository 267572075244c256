"""Ctrl-C during native calls: a SIGINT is held until the end of a section, since a callback from C would lose it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    """Return whether a native call may poll `interrupted`: with other threads, each poll would wait for the GIL."""
    return _pending is not None and _pending.ends_the_pass and threading.active_count() == 1
