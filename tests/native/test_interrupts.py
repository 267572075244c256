"""Ctrl-C: heard between the batches of a long prompt and inside them, and what was computed stays."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np
import pytest
import tiny
from fakes import RandomLanguage, fake_model_drafter, fake_verifier, passes

from via_sd_local.binding import llama
from via_sd_local.engine.engine import Engine
from via_sd_local.interrupts import interrupted, interrupts_after, stop_flag
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.tiers import verifier as tiers
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.verifier import Verifier

LLAMA = tiny.spec("llama")
PROMPT = [1 + i % 250 for i in range(1500)]


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def on_call(number: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ctrl-C as the llama_decode of this number begins; returns the list that collects their statuses."""
    original, statuses = llama.llama_decode, []  # type: list[int]

    def decode(*args: Any) -> int:
        if len(statuses) == number:
            ctrl_c()
        statuses.append(original(*args))
        return statuses[-1]

    monkeypatch.setattr(llama, "llama_decode", decode)
    return statuses


def test_ctrl_c_inside_a_batch_ends_it_and_keeps_the_whole_batches(
    tiny_model: Callable[..., Model],
    verifier: Callable[..., Verifier],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model(LLAMA)
    whole = verifier(model, n_ctx=2048).full(PROMPT, 1).copy()
    tested = verifier(model, n_ctx=2048)
    statuses = on_call(2, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        tested.full(PROMPT, 1)
    assert statuses == [0, 0, 2]  # the third was given up in the middle
    assert tested.cells == PROMPT[:1024]
    assert tested.reuse(PROMPT, 1499) == tested.n_full == 1024
    assert np.array_equal(tested.full(PROMPT[1024:], 1), whole)


def test_ctrl_c_inside_a_batch_is_heard_while_the_main_thread_is_in_native_code(
    tiny_model: Callable[..., Model], verifier: Callable[..., Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while other threads run: the signal reaches one of them, and the main thread runs no Python meanwhile."""
    tested = verifier(tiny_model(LLAMA), n_ctx=2048)
    original, statuses = llama.llama_decode, []  # type: list[int]
    inside, heard = threading.Event(), threading.Event()
    flag = stop_flag()

    def press() -> None:
        inside.wait(60)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        while flag.value == b"" and not heard.wait(0.001):
            pass
        heard.set()

    def decode(*args: Any) -> int:
        if len(statuses) == 1:
            inside.set()
            heard.wait(60)  # a native call as far as Python's signal handler is concerned
        statuses.append(original(*args))
        return statuses[-1]

    monkeypatch.setattr(llama, "llama_decode", decode)
    other = threading.Thread(target=press)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        tested.full(PROMPT, 1)
    other.join()
    assert statuses == [0, 2]
    assert tested.cells == PROMPT[:512]


def test_a_flag_that_is_raised_too_late_ends_nothing(
    tiny_model: Callable[..., Model], verifier: Callable[..., Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that listens may be slow, and raise the flag after Ctrl-C has been handled."""
    model = tiny_model(LLAMA)
    whole = verifier(model, n_ctx=2048).full(PROMPT, 1).copy()
    tested = verifier(model, n_ctx=2048)
    original, statuses = llama.llama_decode, []  # type: list[int]

    def decode(*args: Any) -> int:
        if len(statuses) == 1:
            stop_flag().value = b"\1"
        statuses.append(original(*args))
        return statuses[-1]

    monkeypatch.setattr(llama, "llama_decode", decode)
    with interrupts_after():
        assert np.array_equal(tested.full(PROMPT, 1), whole)
    assert statuses == [0, 2, 0, 0]


def test_other_signals_still_reach_the_event_loop_that_wants_them(
    tiny_model: Callable[..., Model], verifier: Callable[..., Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event loop's own wakeup file gets the signals that arrive during a batch, and is back in place after it."""
    tested = verifier(tiny_model(LLAMA), n_ctx=2048)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        before = signal.set_wakeup_fd(theirs.fileno())
        old = signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
        try:
            original = llama.llama_decode

            def decode(*args: Any) -> int:
                signal.raise_signal(signal.SIGUSR1)
                return int(original(*args))

            monkeypatch.setattr(llama, "llama_decode", decode)
            tested.full(PROMPT[:512], 1)
            ours.settimeout(60)
            assert ours.recv(1) == bytes([signal.SIGUSR1])
        finally:
            signal.signal(signal.SIGUSR1, old)
            assert signal.set_wakeup_fd(before) == theirs.fileno()


def test_ctrl_c_while_all_rows_are_wanted_keeps_nothing_and_forgets_the_cells(
    tiny_model: Callable[..., Model], verifier: Callable[..., Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(LLAMA)
    tested = verifier(model, "2-3", n_ctx=2048)
    tested.full(PROMPT[:20], 1)
    tested.slim(PROMPT[20:24])
    statuses = on_call(1, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        tested.full(PROMPT[24:], len(PROMPT) - 24)
    assert statuses == [0, 2]
    assert tested.cells == PROMPT[:20]
    monkeypatch.undo()
    assert tested.reuse(PROMPT, 1499) == 20
    reference = verifier(model, n_ctx=2048)
    reference.full(PROMPT[:20], 1)
    assert np.array_equal(tested.full(PROMPT[20:], 1480), reference.full(PROMPT[20:], 1480))


def test_where_ctrl_c_leaves_cells_that_the_memory_cannot_forget_the_next_answer_begins_anew(
    tiny_model: Callable[..., Model], verifier: Callable[..., Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(LLAMA)
    tested = verifier(model, n_ctx=2048)
    tested.full(PROMPT[:20], 1)
    on_call(1, monkeypatch)
    removals: list[int] = []
    monkeypatch.setattr(tested.context, "remove", removals.append)
    with pytest.raises(KeyboardInterrupt):
        tested.full(PROMPT[20:], len(PROMPT) - 20)  # the first of its batches is in the cache, unknown to the verifier
    assert removals == [20]
    assert tested.is_broken
    monkeypatch.undo()
    steps = Engine(tested).generate(PROMPT, max_tokens=4)
    fresh = Engine(verifier(model, n_ctx=2048)).generate(PROMPT, max_tokens=4)
    assert [step.tokens for step in steps] == [step.tokens for step in fresh]


def test_a_short_pass_is_finished_first_and_stays(
    tiny_model: Callable[..., Model], verifier: Callable[..., Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = verifier(tiny_model(LLAMA))
    statuses = on_call(0, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        tested.full([1, 2, 3], 1)
    assert statuses == [0]
    assert tested.cells == [1, 2, 3]
    assert tested.reuse([1, 2, 3, 4], 3) == 3


def test_a_draft_models_long_prompt_stops_too(
    tiny_model: Callable[..., Model],
    keep: Callable[[Any], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model(LLAMA)
    drafter = keep(ModelDrafter(model, model, n_ctx=2048, n_threads=1))
    with closing(Context(model, n_ctx=2048, n_threads=1)) as context:
        expected = int(context.decode(PROMPT, 0, 1)[0].argmax())
    statuses = on_call(1, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        drafter.propose(PROMPT, 1)
    assert statuses == [0, 2]
    assert drafter.propose(PROMPT, 1).tokens == [expected]
    assert statuses == [0, 2, 0, 0]  # the first batch was there


@pytest.mark.parametrize("after", [2, 3, 5])
def test_an_answer_that_ctrl_c_ended_leaves_all_that_was_computed(after: int) -> None:
    language = RandomLanguage(seed=1)
    verifier, drafter = fake_verifier(language), fake_model_drafter(language)
    engine = Engine(verifier, drafter, None)
    generation = engine.generate([1, 2, 3], max_tokens=20)
    text = [token for step in islice(generation, after) for token in step.tokens]
    context: Any = verifier.context
    context.fail = ctrl_c
    with pytest.raises(KeyboardInterrupt):
        next(generation)
    context.fail = lambda: None
    passes(verifier).clear()
    rest = [token for step in engine.generate([1, 2, 3, *text], max_tokens=20 - len(text)) for token in step.tokens]
    assert passes(verifier)[0][:2] != ("full", 0)
    whole = Engine(fake_verifier(language), fake_model_drafter(language), None).generate([1, 2, 3], max_tokens=20)
    assert text + rest == [token for step in whole for token in step.tokens]


def test_a_handler_of_the_programs_own_is_called_after_and_stops_nothing(
    tiny_model: Callable[..., Model], verifier: Callable[..., Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = verifier(tiny_model(LLAMA), n_ctx=2048)
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda _number, _frame: heard.append(tested.n_kv))
    try:
        statuses = on_call(0, monkeypatch)
        tested.full(PROMPT, 1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert statuses == [0, 0, 0]
    assert heard == [512]


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_after():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            ctrl_c()
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_inner_block_leaves_ctrl_c_to_the_outer_one() -> None:
    inner_ended = False

    def call() -> None:
        nonlocal inner_ended
        with interrupts_after():
            with interrupts_after():
                ctrl_c()
            inner_ended = interrupted()

    with pytest.raises(KeyboardInterrupt):
        call()
    assert inner_ended
    assert not interrupted()


def test_another_threads_passes_are_not_touched_by_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    with monkeypatch.context() as patch:
        patch.setattr(signal, "signal", lambda *_args: seen.append(True))

        def work() -> None:
            verifier = fake_verifier(RandomLanguage(seed=1))
            verifier.full([1, 2, 3], 1)
            assert isinstance(verifier, tiers.Verifier)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == []
