"""Turns: who waits for whom, and what a paused stream that nobody reads any more does to others."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from via_sd_local.dropin import turns as module
from via_sd_local.dropin.turns import Turn, Turns

LONG = 3600.0  # seconds: nobody loses patience
WAIT = 60.0  # seconds for what must happen


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """`patience(seconds)` sets how long others wait for the reader of a stream."""
    return lambda seconds: monkeypatch.setattr(module, "PATIENCE", seconds)


@pytest.fixture
def elsewhere() -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    """`elsewhere(work)` runs work in a thread of its own, and returns its future result."""
    pools: list[ThreadPoolExecutor] = []

    def run(work: Callable[[], Any]) -> Future[Any]:
        pools.append(ThreadPoolExecutor(1))
        return pools[-1].submit(work)

    yield run
    for pool in pools:
        pool.shutdown()


def begun(turns: Turns) -> Turn:
    turn = Turn()
    turns.begin(turn)
    return turn


def paused(turns: Turns) -> Turn:
    turn = begun(turns)
    turns.pause(turn)
    return turn


def end(turns: Turns, turn: Turn) -> bool:
    """End a turn; whether it was the current one."""
    with turns.ending(turn) as is_mine:
        return is_mine


def whole_turn(turns: Turns) -> bool:
    return end(turns, begun(turns))


def wait_until_queued(turns: Turns, n: int) -> None:
    while len(turns._queue) < n:
        threading.Event().wait(0.001)


def test_a_stream_that_is_held_but_not_read_gives_way_to_another_thread(patience: Any, elsewhere: Any) -> None:
    patience(0.0)
    turns = Turns()
    held = paused(turns)
    assert elsewhere(lambda: whole_turn(turns)).result(WAIT)
    with pytest.raises(RuntimeError, match="ended by a later call"):
        turns.resume(held)
    assert not end(turns, held)


def test_a_stream_whose_thread_has_ended_gives_way(patience: Any, elsewhere: Any) -> None:
    patience(0.0)
    turns = Turns()
    thread = threading.Thread(target=lambda: paused(turns))
    thread.start()
    thread.join()
    assert whole_turn(turns)
    assert elsewhere(lambda: whole_turn(turns)).result(WAIT)


def test_impatience_ends_a_pause_and_not_a_running_turn(patience: Any, elsewhere: Any) -> None:
    patience(0.0)
    turns = Turns()
    running = begun(turns)
    other = elsewhere(lambda: whole_turn(turns))
    wait_until_queued(turns, 1)
    assert not other.done()
    turns.pause(running)
    assert other.result(WAIT)
    assert not end(turns, running)


def test_a_stream_that_is_read_on_is_waited_for(patience: Any, elsewhere: Any) -> None:
    patience(LONG)
    turns = Turns()
    stream = paused(turns)
    other = elsewhere(lambda: whole_turn(turns))
    wait_until_queued(turns, 1)
    for _ in range(100):
        turns.resume(stream)
        turns.pause(stream)
    assert not other.done()
    assert end(turns, stream)
    assert other.result(WAIT)


def test_the_main_thread_takes_over_its_own_stream_at_once(patience: Any) -> None:
    patience(LONG)
    turns = Turns()
    first, second = paused(turns), paused(turns)
    with pytest.raises(RuntimeError, match="ended by a later call"):
        turns.resume(first)
    turns.resume(second)
    assert end(turns, second)


def test_a_pools_thread_that_read_a_stream_last_does_not_end_it_for_another_client(
    patience: Any, elsewhere: Any
) -> None:
    patience(LONG)
    turns = Turns()
    streams: list[Turn] = []

    def read_and_call() -> bool:
        streams.append(paused(turns))
        return whole_turn(turns)

    caller = elsewhere(read_and_call)
    wait_until_queued(turns, 1)
    while not streams:
        threading.Event().wait(0.001)
    turns.resume(streams[0])  # the next read, in another thread of the pool
    assert not caller.done()
    assert end(turns, streams[0])
    assert caller.result(WAIT)


def test_calls_are_served_in_their_order(patience: Any, elsewhere: Any) -> None:
    patience(LONG)
    turns, order = Turns(), []  # type: Turns, list[int]
    first = begun(turns)

    def call(number: int) -> None:
        turn = begun(turns)
        order.append(number)
        end(turns, turn)

    calls = []
    for number in range(6):
        calls.append(elsewhere(lambda number=number: call(number)))
        wait_until_queued(turns, number + 1)
    end(turns, first)
    for waiting in calls:
        waiting.result(WAIT)
    assert order == list(range(6))


def test_a_call_that_is_interrupted_while_it_waits_blocks_nobody(
    patience: Any, elsewhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience(LONG)
    turns = Turns()
    running = threading.Event()
    over = threading.Event()

    def long_turn() -> None:
        turn = begun(turns)
        running.set()
        over.wait()
        end(turns, turn)

    other = elsewhere(long_turn)
    running.wait()

    def interrupt(_seconds: float | None) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(turns._changed, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            begun(turns)
    over.set()
    other.result(WAIT)
    assert whole_turn(turns)


def test_a_look_at_the_context_leaves_the_stream_of_another_thread_alive(patience: Any, elsewhere: Any) -> None:
    patience(0.0)
    turns = Turns()
    stream = paused(turns)

    def look() -> None:
        with turns.looking():
            pass

    elsewhere(look).result(WAIT)
    turns.resume(stream)
    assert end(turns, stream)


def test_a_stream_that_is_finalised_during_a_look_leaves_the_context_alone(patience: Any) -> None:
    turns = Turns()
    tidied: list[bool] = []

    def stream() -> Iterator[None]:
        turn = begun(turns)
        try:
            turns.pause(turn)
            yield
        finally:
            with turns.ending(turn) as is_mine:
                tidied.append(is_mine)

    for looks in (True, False):
        reader = stream()
        next(reader)
        if looks:
            with turns.looking():
                del reader
                gc.collect()
        else:
            del reader
            gc.collect()
    assert tidied == [False, True]
    assert whole_turn(turns)


def test_closing_waits_for_the_running_turn_and_for_those_who_read_the_model(elsewhere: Any) -> None:
    turns = Turns()
    running = begun(turns)
    closed: list[bool] = []

    def close() -> None:
        with turns.closing() as is_last:
            closed.append(is_last)

    closer = elsewhere(close)
    wait_until_queued(turns, 1)
    with turns.using():
        end(turns, running)
        late = elsewhere(lambda: whole_turn(turns))
        threading.Event().wait(0.01)
        assert not closed
    closer.result(WAIT)
    with pytest.raises(ValueError, match="has been closed"):
        late.result(WAIT)
    close()
    assert closed == [True, False]
    for use in (turns.using, turns.looking, turns.taken):
        with pytest.raises(ValueError, match="has been closed"), use():
            pass


def test_closing_ends_a_paused_stream_at_once(patience: Any, elsewhere: Any) -> None:
    patience(LONG)
    turns = Turns()
    stream = paused(turns)

    def close() -> None:
        with turns.closing():
            pass

    elsewhere(close).result(WAIT)
    with pytest.raises(ValueError, match="has been closed"):
        turns.resume(stream)
    assert not end(turns, stream)


def test_an_object_cannot_be_closed_from_within_its_own_turn() -> None:
    turns = Turns()
    turn = begun(turns)
    with pytest.raises(RuntimeError, match="generating already"), turns.closing():
        pass
    assert end(turns, turn)
    assert whole_turn(turns)
