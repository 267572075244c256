"""Twenty requests from eight threads, some of whose clients disappear: all the others are answered."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dropin
import pytest
from dropin import Make, joined, says, text_of

from via_sd_local import Llama

make = dropin.make
tiny_path = dropin.tiny_path

N_REQUESTS, N_THREADS = 20, 8
WAIT = 120.0  # seconds for what must happen


def word(number: int) -> str:
    """The answer to a request."""
    return "".join(chr(97 + (number * 7 + i) % 26) for i in range(6 + number % 5))


def request(llm: Llama, number: int) -> dict[str, Any]:
    return says(llm, word(number), prompt=f"the request of client {number}")


def disconnects(number: int, kinds: tuple[str, ...]) -> str:
    """Whether, and how, the client of a request goes away; the same in every run."""
    return random.Random(number).choice(kinds)


def test_all_clients_that_stay_are_answered(make: Make) -> None:
    """Streams that are closed, dropped, or read to their end, and calls without a stream."""
    llm = make(drafter="lookup", draft_tokens=3)
    kinds = ("call", "stream", "stream", "closes", "drops")

    def serve(number: int) -> str | None:
        kind, options = disconnects(number, kinds), request(llm, number)
        if kind == "call":
            return text_of(llm(**options))
        stream = llm(**options, stream=True)
        if kind == "stream":
            return joined(stream)
        next(stream)
        if kind == "closes":
            stream.close()
        return None

    expected = {n: None if disconnects(n, kinds) in ("closes", "drops") else word(n) for n in range(N_REQUESTS)}
    assert {disconnects(n, kinds) for n in range(N_REQUESTS)} == set(kinds)
    with ThreadPoolExecutor(N_THREADS) as pool:
        futures = {n: pool.submit(serve, n) for n in range(N_REQUESTS)}
        assert {n: future.result(WAIT) for n, future in futures.items()} == expected
    assert text_of(llm(**request(llm, 3))) == word(3)


def test_streams_that_their_clients_have_left_are_held_and_block_nobody(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a server that keeps the generators of disconnected clients: each waiting call ends one of them."""
    monkeypatch.setattr("via_sd_local.dropin.turns.PATIENCE", 0.0)
    llm = make(drafter="lookup", draft_tokens=3)
    held: list[Any] = []

    def serve(number: int) -> str | None:
        if number % 3:
            return text_of(llm(**request(llm, number)))
        held.append(llm(**request(llm, number), stream=True))
        next(held[-1])
        return None

    with ThreadPoolExecutor(N_THREADS) as pool:
        futures = {n: pool.submit(serve, n) for n in range(N_REQUESTS)}
        assert {n: future.result(WAIT) for n, future in futures.items()} == {
            n: word(n) if n % 3 else None for n in range(N_REQUESTS)
        }
    assert text_of(llm(**request(llm, 3))) == word(3)
    for stream in held:
        with pytest.raises(RuntimeError, match="ended by a later call"):
            next(stream)


def test_an_asynchronous_server_reads_streams_in_the_threads_of_a_pool(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Starlette's StreamingResponse does: each chunk may be read in another thread, and tasks are cancelled."""
    monkeypatch.setattr("via_sd_local.dropin.turns.PATIENCE", WAIT)  # every client that stays reads on in time
    llm = make(drafter="lookup", draft_tokens=3)
    kinds = ("call", "stream", "stream", "closes")

    async def serve(number: int, run: Callable[..., Any]) -> str | None:
        kind, options = disconnects(number, kinds), request(llm, number)
        if kind == "call":
            return text_of(await run(lambda: llm(**options)))
        stream: Iterator[Any] = llm(**options, stream=True)
        text, chunk = "", await run(next, stream, None)
        while chunk is not None:
            if kind == "closes":
                stream.close()  # type: ignore[attr-defined]
                return None
            text += chunk["choices"][0]["text"]
            chunk = await run(next, stream, None)
        return text

    async def serve_all() -> list[str | None]:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(2 * N_REQUESTS) as pool:  # a call that waits keeps its thread

            def run(work: Callable[..., Any], *args: Any) -> Any:
                return loop.run_in_executor(pool, work, *args)

            tasks = [serve(number, run) for number in range(N_REQUESTS)]
            return list(await asyncio.wait_for(asyncio.gather(*tasks), WAIT))

    expected = [None if disconnects(n, kinds) == "closes" else word(n) for n in range(N_REQUESTS)]
    assert asyncio.run(serve_all()) == expected


def test_no_call_waits_for_more_than_those_that_came_before(make: Make) -> None:
    """Calls are answered in their order: none waits for one that came later."""
    llm = make()
    order: list[int] = []
    entered = threading.Event()
    go_on = threading.Event()

    def first(_ids: Any, scores: Any) -> Any:
        entered.set()
        assert go_on.wait(WAIT)
        return scores

    threads = [threading.Thread(target=lambda: llm("the first", max_tokens=1, logits_processor=[first]))]
    threads[0].start()
    assert entered.wait(WAIT)
    for number in range(N_THREADS):

        def call(number: int = number) -> None:
            llm(**request(llm, number), stopping_criteria=lambda _ids, _logits: order.append(number) or True)

        threads.append(threading.Thread(target=call))
        threads[-1].start()
        while len(llm._turns._queue) <= number:
            threads[-1].join(0.001)
    go_on.set()
    for thread in threads:
        thread.join(WAIT)
    assert order == list(range(N_THREADS))
