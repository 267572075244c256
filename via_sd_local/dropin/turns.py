"""Turns: several threads may use one object, which runs one generation at a time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PATIENCE = 2.0  # seconds without a read after which a stream counts as dropped, if another thread wants to begin
CLOSED = "this Llama has been closed"


@dataclass(eq=False, slots=True)
class Turn:
    """The right to use the object.

    `thread` identifies the thread that ran last, `running` tells whether it runs now, and `paused_at` when it stopped,
    in seconds of the monotonic clock. With `nests` the same thread may take short turns within this one.
    """

    nests: bool = False
    thread: int = 0
    running: bool = False
    paused_at: float = 0.0

    @contextmanager
    def nesting(self) -> Iterator[None]:
        """Permit short turns of the same thread within this one, for a while."""
        self.nests = True
        try:
            yield
        finally:
            self.nests = False


class Turns:
    """Hands out turns, one at a time, in the order of the calls.

    A call waits for the end of a running turn. The thread of a running turn cannot begin another turn (a callback that
    calls the object again). A stream pauses its turn while its consumer is busy. A paused turn gives way to the next
    call, whoever holds the stream, and the stream ends with an error at its next read: at once if the main thread read
    it last and makes the call, otherwise if nobody reads on within `PATIENCE`. (The threads of a pool read
    streams in turn, so that the same thread may serve another client.) Nothing depends on when a generator is
    finalised.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # its lock is re-entrant: a stream may be finalised inside any section
        self._holder: Turn | None = None
        self._queue: deque[Turn] = deque()  # the calls that wait
        self._looks = 0
        self._uses = 0
        self._is_closed = False

    #
    # turns
    #

    def begin(self, turn: Turn) -> None:
        """Wait until this turn, which the caller passes to `ending` in any case, may run.

        Raises RuntimeError for a call from within a running turn of the same thread, ValueError after `closing`.
        """
        if not self._begin(turn, PATIENCE):
            raise ValueError(CLOSED)

    def _begin(self, turn: Turn, patience: float) -> bool:
        """Wait for a turn; False if the object is closed."""
        me = threading.get_ident()
        with self._changed:
            self._queue.append(turn)
            try:
                while not self._is_closed:
                    seconds = self._seconds_to_wait(me, patience)
                    if self._queue[0] is not turn:
                        seconds = None
                    elif seconds == 0:
                        turn.thread, turn.running = me, True
                        self._holder = turn
                        return True
                    self._changed.wait(seconds)
                return False
            finally:
                self._queue.remove(turn)
                self._changed.notify_all()

    def _seconds_to_wait(self, me: int, patience: float) -> float | None:
        """Return for how long a call of the thread `me` waits at most if nothing changes; None until a change."""
        holder = self._holder
        if holder is None:
            return 0
        if not holder.running:
            if holder.thread == me == threading.main_thread().ident:
                return 0
            return max(0.0, holder.paused_at + patience - time.monotonic())
        if holder.thread == me:
            raise RuntimeError(
                "this Llama is generating already, further up this thread's call stack; a logits processor or "
                "stopping criterion must use another object"
            )
        return None

    def pause(self, turn: Turn) -> None:
        """Mark the turn as paused: the consumer of a stream runs now."""
        with self._changed:
            turn.running, turn.paused_at = False, time.monotonic()
            self._changed.notify_all()

    def resume(self, turn: Turn) -> None:
        """Continue a paused turn, possibly in another thread.

        Raises RuntimeError if a later call has ended it, ValueError after `closing`.
        """
        with self._changed:
            if self._holder is not turn:
                self.check_open()
                raise RuntimeError(
                    "this stream was ended by a later call of the same Llama, which did not wait for its reader; read "
                    "a stream to its end first"
                )
            turn.thread, turn.running = threading.get_ident(), True

    @contextmanager
    def ending(self, turn: Turn) -> Iterator[bool]:
        """End a turn, so that the next can begin; a turn that is over stays so.

        Yields whether the context is still the turn's to tidy up. That is not so if a generator is finalised inside
        another operation of this thread.
        """
        with self._changed:
            is_mine = self._holder is turn and not self._looks
            if is_mine:
                turn.thread, turn.running = threading.get_ident(), True
        try:
            yield is_mine
        finally:
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
        turn = Turn(nests=True)
        with self.ending(turn):
            self.begin(turn)
            yield

    #
    # operations beside a turn
    #

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Hold a turn for an operation that changes nothing, or stop a paused stream from going on meanwhile."""
        with self._changed:
            self.check_open()
            holder = self._holder
            if holder is not None and not holder.running:
                self._looks += 1
                try:
                    yield
                finally:
                    self._looks -= 1
                return
        with self.taken():
            yield

    @contextmanager
    def using(self) -> Iterator[None]:
        """Put `closing` off during an operation that reads the model and does not touch the context; needs no turn."""
        with self._changed:
            self.check_open()
            self._uses += 1
        try:
            yield
        finally:
            with self._changed:
                self._uses -= 1
                self._changed.notify_all()

    #
    # the end
    #

    def check_open(self) -> None:
        """Raise ValueError after `closing`."""
        if self._is_closed:
            raise ValueError(CLOSED)

    @contextmanager
    def closing(self) -> Iterator[bool]:
        """Hold the last turn of all, to free what turns are for; yields False if there has been a last one already.

        Waits for the running turn and the calls before this one, and ends a paused stream. Raises RuntimeError within a
        running turn of the same thread.
        """
        turn = Turn()
        with self.ending(turn):
            is_last = self._begin(turn, 0.0)
            if is_last:
                self._wait_for_uses()
            yield is_last

    def _wait_for_uses(self) -> None:
        """Let no operation begin any more, and wait for those that `using` counts."""
        with self._changed:
            self._is_closed = True
            try:
                while self._uses:
                    self._changed.wait()
            except BaseException:
                self._is_closed = False
                raise
