"""Signals that end the chat: they take the way of Ctrl-C, so that the terminal and the conversation are kept."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# SIGQUIT is Ctrl-\\, SIGHUP the end of the terminal; both are unknown to Windows
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))


class Ending:
    """Whether a signal wants the chat to end."""

    def __init__(self) -> None:
        self._signal: int | None = None

    @property
    def status(self) -> int | None:
        """The exit status for the signal that arrived, 128 and its number; None if none did."""
        return None if self._signal is None else 128 + self._signal

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._signal = number
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
            raise SystemExit(self.status)
        signal.raise_signal(signal.SIGINT)  # what runs now ends at a point where that does no harm

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Turn SIGTERM, SIGHUP and SIGQUIT into a KeyboardInterrupt while the block runs; ignored ones stay ignored."""
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, self._note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
