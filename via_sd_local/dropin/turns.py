"""One generation at a time for an object that several threads may use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Turn:
    """The right to use the object; `thread` is the one that ran last, `running` whether it does so now.

    `nests`: the same thread may take turns within this one.
    """

    thread: int
    running: bool = True
    nests: bool = False


class Turns:
    """Hands out turns, one at a time.

    Another thread waits for the end of a turn. The thread of a running turn cannot begin another one (a callback that
    calls the object again). A turn that is paused, as that of a stream whose consumer is busy, is ended by the next
    call of the thread that ran it last: whoever leaves a stream half read may go on with the object.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: Turn | None = None

    def begin(self, *, nests: bool = False) -> Turn:
        """Wait for a turn; RuntimeError for re-entrance."""
        me = threading.get_ident()
        with self._changed:
            while self._holder is not None and self._holder.thread != me:
                self._changed.wait()
            if self._holder is not None and self._holder.running:
                raise RuntimeError(
                    "this Llama is generating already, further up in this thread's calls; a logits processor or "
                    "stopping criterion must use another object"
                )
            self._holder = Turn(me, nests=nests)
            return self._holder

    def pause(self, turn: Turn) -> None:
        """The consumer takes over."""
        turn.running = False

    def resume(self, turn: Turn) -> None:
        """The consumer, possibly another thread, asks for more; RuntimeError if the turn is over."""
        with self._changed:
            if self._holder is not turn:
                raise RuntimeError("this stream was ended by a later call of the same Llama; read it to its end first")
            turn.thread, turn.running = threading.get_ident(), True

    def is_current(self, turn: Turn) -> bool:
        """Whether the turn is not over."""
        return self._holder is turn

    def end(self, turn: Turn) -> None:
        """Let the next one begin; nothing happens if the turn is over."""
        with self._changed:
            if self._holder is turn:
                self._holder = None
                self._changed.notify_all()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A turn for something short, or the short one that this thread has."""
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
        """A turn for something that changes nothing: a paused stream of this thread stays alive."""
        holder = self._holder
        if holder is not None and holder.thread == threading.get_ident() and not holder.running:
            yield
        else:
            with self.taken():
                yield
