"""Turns: several threads may use one object, which runs one generation at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Turn:
    """The right to use the object.

    `thread` identifies the thread that ran last, and `running` tells whether it runs now. With `nests` the same thread
    may take short turns within this one.
    """

    thread: int
    running: bool = True
    nests: bool = False


class Turns:
    """Hands out turns, one at a time.

    Another thread waits for the end of a turn. The thread of a running turn cannot begin another turn (a callback that
    calls the object again). A stream pauses its turn while its consumer is busy; the next call of the thread that ran
    it last ends a paused turn, so that a thread which leaves a stream half read can go on with the object.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: Turn | None = None

    def begin(self, *, nests: bool = False) -> Turn:
        """Wait for a turn; RuntimeError for a call from within a running turn of the same thread."""
        me = threading.get_ident()
        with self._changed:
            while self._holder is not None and self._holder.thread != me:
                self._changed.wait()
            if self._holder is not None and self._holder.running:
                raise RuntimeError(
                    "this Llama is generating already, further up this thread's call stack; a logits processor or "
                    "stopping criterion must use another object"
                )
            self._holder = Turn(me, nests=nests)
            return self._holder

    def pause(self, turn: Turn) -> None:
        """Mark the turn as paused: the consumer of a stream runs now."""
        turn.running = False

    def resume(self, turn: Turn) -> None:
        """Continue a paused turn, possibly in another thread; RuntimeError if the turn is over."""
        with self._changed:
            if self._holder is not turn:
                raise RuntimeError(
                    "this stream was ended by a later call of the same Llama; read a stream to its end first"
                )
            turn.thread, turn.running = threading.get_ident(), True

    def is_current(self, turn: Turn) -> bool:
        """Return whether the turn is not over yet."""
        return self._holder is turn

    def end(self, turn: Turn) -> None:
        """End a turn, so that the next can begin; a turn that is over stays so."""
        with self._changed:
            if self._holder is turn:
                self._holder = None
                self._changed.notify_all()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold a turn for a short operation, within the short turn that this thread may hold already."""
        holder = self._holder
        if holder is not None and holder.nests and holder.thread == threading.get_ident():
            yield
            return
        turn = self.begin(nests=True)
        try:
            yield
        finally:
            self.end(turn)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Hold a turn for an operation that changes nothing, so that a paused stream of this thread stays alive."""
        holder = self._holder
        if holder is not None and holder.thread == threading.get_ident() and not holder.running:
            yield
        else:
            with self.taken():
                yield
