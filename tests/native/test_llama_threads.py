"""One generation at a time: who waits, who is refused, and what a stream that nobody reads any more leaves behind."""

from __future__ import annotations

import gc
import threading
from typing import Any

import dropin
import pytest
from dropin import PROMPT, Make, joined, says, text_of

make = dropin.make
tiny_path = dropin.tiny_path

GREEDY: dict[str, Any] = {"max_tokens": 10, "temperature": 0}


def in_thread(work: Any) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    return thread, results


def test_calls_from_other_threads_wait_for_the_end_of_a_stream(make: Make) -> None:
    llm = make()
    stream = llm(**says(llm, "abc"), stream=True)
    first = next(stream)["choices"][0]["text"]
    thread, results = in_thread(lambda: text_of(llm(**says(llm, "xyz"))))
    thread.join(0.05)
    assert thread.is_alive()
    assert first + joined(stream) == "abc"
    thread.join(10)
    assert results == ["xyz"]


def test_many_threads_get_their_own_answers(make: Make) -> None:
    llm = make(drafter="lookup", draft_tokens=3)
    words = ["one", "two", "three", "four", "five", "six"]
    started = [in_thread(lambda word=word: joined(llm(**says(llm, word), stream=True))) for word in words]
    for thread, _ in started:
        thread.join(20)
    assert [results for _, results in started] == [[word] for word in words]


def test_a_stream_may_be_read_by_several_threads_in_turn(make: Make) -> None:
    llm = make()
    stream = llm(**says(llm, "abc"), stream=True)
    texts = [next(stream)["choices"][0]["text"]]
    for _ in "bc":
        thread, results = in_thread(lambda: next(stream)["choices"][0]["text"])
        thread.join(10)
        texts += results
    assert "".join(texts) == "abc"


@pytest.mark.parametrize("stream", [False, True])
def test_a_callback_that_calls_its_own_object_is_refused(make: Make, stream: bool) -> None:
    llm = make()

    def calls_again(_ids: Any, scores: Any) -> Any:
        llm(PROMPT, **GREEDY)
        return scores

    with pytest.raises(RuntimeError, match="generating already"):
        list(llm(PROMPT, **GREEDY, logits_processor=[calls_again], stream=stream))
    for method in (lambda: llm.eval([1]), llm.reset, llm.save_state):

        def uses_it(_ids: Any, _logits: Any, method: Any = method) -> bool:
            method()
            return False

        with pytest.raises(RuntimeError, match="generating already"):
            llm(PROMPT, **GREEDY, stopping_criteria=[uses_it])
    assert text_of(llm(**says(llm, "abc"))) == "abc"


def test_a_stream_that_is_left_half_read_is_ended_by_the_next_call(make: Make) -> None:
    llm = make()
    old = llm(**says(llm, "abcdef"), stream=True)
    next(old)
    assert text_of(llm(**says(llm, "xyz"))) == "xyz"
    with pytest.raises(RuntimeError, match="ended by a later call"):
        next(old)
    assert text_of(llm(**says(llm, "uvw"))) == "uvw"
    two = [llm(**says(llm, word), stream=True) for word in ("abc", "xyz")]
    next(two[0])
    next(two[1])
    with pytest.raises(RuntimeError, match="ended by a later call"):
        next(two[0])
    assert joined(two[1]) == "yz"


def test_a_dropped_stream_lets_other_threads_go_on(make: Make) -> None:
    llm = make()
    for drop in ("close", "forget", "exception"):
        stream = llm(**says(llm, "abcdef"), stream=True)
        next(stream)
        thread, results = in_thread(lambda: text_of(llm(**says(llm, "xyz"))))
        if drop == "close":
            stream.close()
        elif drop == "exception":
            with pytest.raises(KeyError):
                stream.throw(KeyError("the consumer's"))
        del stream
        gc.collect()
        thread.join(10)
        assert results == ["xyz"]


def test_a_failing_callback_leaves_the_object_usable(make: Make) -> None:
    llm = make(drafter="lookup", draft_tokens=3)

    def fails(ids: Any, _logits: Any) -> bool:
        if len(ids) > 8:
            raise ZeroDivisionError
        return False

    expected = text_of(llm(PROMPT, **GREEDY))
    with pytest.raises(ZeroDivisionError):
        llm(PROMPT, **GREEDY, stopping_criteria=fails)
    assert text_of(llm(PROMPT, **GREEDY)) == expected


def test_a_state_can_be_saved_while_a_stream_is_read(make: Make) -> None:
    llm = make()
    stream = llm(**says(llm, "abc"), stream=True)
    next(stream)
    state = llm.save_state()
    assert state.n_tokens == llm.n_tokens
    assert joined(stream) == "bc"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is not being read counts as dropped at once."""
    monkeypatch.setattr("via_sd_local.dropin.turns.PATIENCE", 0.0)


@pytest.mark.parametrize("kind", ["completion", "chat", "generate"])
def test_a_stream_that_somebody_holds_and_nobody_reads_blocks_no_thread(make: Make, impatient: None, kind: str) -> None:
    """As with a client that has disconnected from a server, or a notebook with a half-read stream in a variable."""
    llm = make(drafter="lookup", draft_tokens=3)
    expected = text_of(make()(PROMPT, **GREEDY))
    message = [{"role": "user", "content": "abc"}]
    held: list[Any] = []

    def leave_half_read() -> None:
        stream: Any
        if kind == "completion":
            stream = llm("another text", **GREEDY, stream=True)
        elif kind == "chat":
            stream = llm.create_chat_completion(message, **GREEDY, stream=True)  # type: ignore[arg-type]
            next(stream)  # the role
        else:
            stream = llm.generate([1, 270, 280], temp=0.0)
        next(stream)
        held.append(stream)

    thread, _ = in_thread(leave_half_read)
    thread.join(60)  # the thread has ended, the stream has not
    for work in (lambda: text_of(llm(PROMPT, **GREEDY)), lambda: joined(llm(PROMPT, **GREEDY, stream=True))):
        other, results = in_thread(work)
        other.join(60)
        assert results == [expected]
    with pytest.raises(RuntimeError, match="ended by a later call"):
        next(held[0])
    assert text_of(llm(PROMPT, **GREEDY)) == expected


def test_evaluating_saving_and_resetting_wait_for_no_dropped_stream(make: Make, impatient: None) -> None:
    llm = make()
    llm(PROMPT, **GREEDY)
    state, held = llm.save_state(), []
    for use in (lambda: llm.eval([5]), llm.reset, llm.save_state, lambda: llm.load_state(state)):
        held.append(llm(PROMPT, **GREEDY, stream=True))
        next(held[-1])
        thread, _ = in_thread(use)
        thread.join(60)
        assert not thread.is_alive()
    assert text_of(llm(PROMPT, **GREEDY)) == text_of(make()(PROMPT, **GREEDY))


def test_streams_that_were_never_begun_hold_nothing(make: Make) -> None:
    llm = make()
    unread = llm(**says(llm, "abc"), stream=True)
    thread, results = in_thread(lambda: text_of(llm(**says(llm, "xyz"))))
    thread.join(10)
    assert results == ["xyz"]
    assert joined(unread) == "abc"
