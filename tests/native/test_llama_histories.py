"""Whatever has happened to an object before, an answer is a fresh object's: random histories of calls and failures.

`HISTORIES=500 pytest tests/native/test_llama_histories.py` tries more of them, other ones each time, and
reduces one that fails.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import dropin
import numpy as np
import pytest
import tiny
from dropin import ids
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from via_sd_local import Llama
from via_sd_local.binding import import_llama_cpp
from via_sd_local.binding import llama as native
from via_sd_local.errors import NativeError

tiny_path = dropin.tiny_path

HISTORIES = os.environ.get("HISTORIES")  # of each kind of object
N_CTX = 96
F32 = 0  # GGML_TYPE_F32: with it the K/V hardly depend on how a text was cut into batches
SETTINGS: dict[str, Any] = {
    "n_ctx": N_CTX,
    "n_batch": 8,
    "n_ubatch": 8,
    "n_threads": 1,
    "type_k": F32,
    "type_v": F32,
    "verbose": False,
}
SEA = [1, 270, 280, 290, 300, 310, 270, 280, 290, 300, 311, 270, 280, 290, 312, 275, 285, 295, 305, 315]
LAND = [1, 270, 280, 290, 301, 302, 303, 304, 303, 304, 303, 304, 299, 298, 297, 296, 295, 294, 293, 292]

LlamaRAMCache = import_llama_cpp("llama_cache").LlamaRAMCache


class Refused(Exception):
    """Raised by a callback."""


@dataclass
class Scene:
    """An object under test, what a fresh one answers, the prompt before, states that were saved, and streams left."""

    llm: Llama
    fresh: Callable[[tuple[int, ...], int], dict[str, Any]]
    prompt: tuple[int, ...] = (1,)
    states: list[Any] = field(default_factory=list)
    streams: list[Any] = field(default_factory=list)


Act = Callable[[Scene], None]

prompts = st.builds(
    lambda text, n, tail: (*text[:n], *tail),
    st.sampled_from([SEA, LAND]),
    st.sampled_from([1, 4, 6, 9, 12, 17, 20]),
    st.sampled_from([(), (270,), (301,), (270, 300, 311)]),
)
counts = st.one_of(st.just(0), st.integers(1, 8))


@contextmanager
def at_decode(number: int, happen: Callable[[], int | None]) -> Iterator[None]:
    """Let something happen before the llama_decode of this number; a status that it returns replaces the call."""
    original, left = native.llama_decode, [number]

    def decode(*args: Any) -> int:
        left[0] -= 1
        status = happen() if left[0] == -1 else None
        return original(*args) if status is None else status

    native.llama_decode = decode
    try:
        yield
    finally:
        native.llama_decode = original


def same(answer: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same text, end and log-probabilities, which tell the right cache from a wrong one even if the text cannot."""
    (one,), (other,) = answer["choices"], expected["choices"]
    assert one["text"] == other["text"]
    assert one["finish_reason"] == other["finish_reason"]
    if one["logprobs"] is not None:
        assert one["logprobs"]["tokens"] == other["logprobs"]["tokens"]
        values = [
            np.array([value for value in choice["logprobs"]["token_logprobs"] if value is not None])
            for choice in (one, other)
        ]
        np.testing.assert_allclose(*values, atol=2e-3)


def answer(prompt: tuple[int, ...], n: int, text: str, *, echo: bool, scored: bool) -> Act:
    """Complete a prompt, the prompt before, or what the object holds with a new end, and compare."""

    def act(scene: Scene) -> None:
        if text == "held":
            scene.prompt = (*ids(scene.llm)[: N_CTX - 24], *prompt[-2:])
        elif text == "new":
            scene.prompt = prompt
        options: dict[str, Any] = {"max_tokens": n, "temperature": 0, "echo": echo}
        got = scene.llm(list(scene.prompt), **options, logprobs=1 if scored else None)
        expected = scene.fresh(scene.prompt, n)
        if not echo:
            same(got, expected)
        else:
            assert got["choices"][0]["text"].endswith(expected["choices"][0]["text"])

    return act


def stream(prompt: tuple[int, ...], n: int, reads: int, *, drops: bool) -> Act:
    """Read a stream in part, and leave it or close it."""

    def act(scene: Scene) -> None:
        chunks = scene.llm(list(prompt), max_tokens=n, temperature=0, stream=True)
        for _ in zip(range(reads), chunks, strict=False):
            pass
        if drops:
            chunks.close()
        else:
            scene.streams.append(chunks)

    return act


def read_on(index: int) -> Act:
    """Read a stream that was left, which ends or says that it was ended."""

    def act(scene: Scene) -> None:
        if scene.streams:
            with suppress(RuntimeError):
                list(scene.streams.pop(index % len(scene.streams)))

    return act


def failing_callback(prompt: tuple[int, ...], after: int, *, processor: bool) -> Act:
    """A logits processor or a stopping criterion that raises at its call of this number, if it comes to that."""

    def act(scene: Scene) -> None:
        left = [after]

        def callback(_ids: Any, logits: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Refused
            return logits if processor else False

        option = {"logits_processor": [callback]} if processor else {"stopping_criteria": [callback]}
        with suppress(Refused):
            scene.llm(list(prompt), max_tokens=6, temperature=0, **option)

    return act


def interrupted(prompt: tuple[int, ...], at: int) -> Act:
    """Ctrl-C during the prompt or the answer."""

    def act(scene: Scene) -> None:
        with suppress(KeyboardInterrupt), at_decode(at, lambda: signal.raise_signal(signal.SIGINT)):
            scene.llm(list(prompt), max_tokens=6, temperature=0)

    return act


def failing_pass(prompt: tuple[int, ...], at: int, status: int) -> Act:
    """llama_decode fails during the prompt or the answer; the draft model's costs a warning and the drafts."""

    def act(scene: Scene) -> None:
        with suppress(NativeError), at_decode(at, lambda: status), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            scene.llm(list(prompt), max_tokens=6, temperature=0)

    return act


def save(scene: Scene) -> None:
    scene.states.append(scene.llm.save_state())


def load(index: int) -> Act:
    def act(scene: Scene) -> None:
        if scene.states:
            scene.llm.load_state(scene.states[index % len(scene.states)])

    return act


def set_cache(*, on: bool) -> Act:
    return lambda scene: scene.llm.set_cache(LlamaRAMCache(1 << 24) if on else None)


def reset(scene: Scene) -> None:
    scene.llm.reset()


def rewind(n: int) -> Act:
    """Set the number of tokens, as users of llama-cpp-python do."""

    def act(scene: Scene) -> None:
        scene.llm.n_tokens = min(n, scene.llm.n_tokens)

    return act


def evaluate(tokens: list[int]) -> Act:
    """Evaluate tokens by hand after a text that the object holds, and compare what it says of the next."""

    def act(scene: Scene) -> None:
        llm = scene.llm
        if llm.n_tokens + len(tokens) >= N_CTX - 8:
            llm.reset()
        try:
            llm.eval(tokens)
        except NativeError:  # a recurrent memory, which says that it cannot be rolled back
            llm.reset()
            llm.eval(tokens)
        text = tuple(ids(llm))
        assert text[-len(tokens) :] == tuple(tokens)
        token = llm.sample(temp=0.0)
        same(llm([*text], max_tokens=1, temperature=0), scene.fresh(text, 1))
        piece = llm.detokenize([token]).decode("utf-8", "ignore")
        assert scene.fresh(text, 1)["choices"][0]["text"] in ("", piece)

    return act


def foreign(tokens: list[int], *, told: bool) -> Act:
    """Other code decodes into the context, and shows what it did or does not."""

    def act(scene: Scene) -> None:
        llm = scene.llm
        n = llm.n_tokens
        if n + len(tokens) >= N_CTX - 8:
            return
        memory = native.llama_get_memory(llm.ctx)
        if native.llama_memory_seq_pos_max(memory, 0) != n - 1:
            return  # llama.cpp would refuse a batch that begins elsewhere
        batch = native.llama_batch_init(len(tokens), 0, 1)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, n + i, 1, 0
            batch.seq_id[i][0] = 0
        batch.n_tokens = len(tokens)
        assert native.llama_decode(llm.ctx, batch) == 0
        native.llama_batch_free(batch)
        if told:
            llm.input_ids[n : n + len(tokens)] = tokens
            llm.n_tokens = n + len(tokens)

    return act


def generate(prompt: tuple[int, ...], n: int, *, continues: bool) -> Act:
    """Take tokens from `generate`, from a prompt or from the text that is there."""

    def act(scene: Scene) -> None:
        llm = scene.llm
        if continues and not 0 < llm.n_tokens < N_CTX - 24 - len(prompt):
            return
        with closing(llm.generate(list(prompt), temp=0.0, reset=not continues)) as tokens:
            for _ in zip(range(n), tokens, strict=False):
                pass

    return act


flags = st.booleans()
few = st.lists(st.integers(260, 319), min_size=1, max_size=8)  # one batch
answers = st.builds(answer, prompts, counts, st.sampled_from(["new", "held", "again"]), echo=flags, scored=flags)
others = st.one_of(
    st.builds(answer, prompts, st.just(0), st.just("new"), echo=flags, scored=flags),
    st.builds(stream, prompts, counts, counts, drops=flags),
    st.builds(read_on, st.integers(0, 3)),
    st.builds(failing_callback, prompts, st.integers(0, 6), processor=flags),
    st.builds(interrupted, prompts, st.integers(0, 6)),
    st.builds(failing_pass, prompts, st.integers(0, 6), st.sampled_from([1, -1, -3])),
    st.just(save),
    st.builds(load, st.integers(0, 3)),
    st.builds(set_cache, on=flags),
    st.just(reset),
    st.builds(rewind, st.integers(0, 24)),
    st.builds(evaluate, few),
    st.builds(foreign, few, told=flags),
    st.builds(generate, prompts, counts, continues=flags),
)
histories = st.lists(st.tuples(others, answers), min_size=3, max_size=6)


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("llama", {"drafter": "lookup", "draft_tokens": 3, "mode": "exact", "mask": "2-3"}),
    "all rows": ("llama", {"drafter": "lookup", "draft_tokens": 3, "logits_all": True}),
    "draft model": ("llama", {"draft_tokens": 3}),
    "window": ("gemma2", {"drafter": "lookup", "draft_tokens": 3}),
    "recurrent": ("mamba", {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_history_shows_in_an_answer(
    kind: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, tiny_path: Path
) -> None:
    architecture, options = KINDS[kind]
    path = str(tiny_path if architecture == "llama" else tiny.write(tmp_path / "m.gguf", tiny.spec(architecture)))
    if kind == "draft model":
        options = {**options, "draft_model_path": path}

    @cache
    def fresh(prompt: tuple[int, ...], n: int) -> dict[str, Any]:
        with closing(Llama(path, **SETTINGS)) as llm:
            response: dict[str, Any] = llm(list(prompt), max_tokens=n, temperature=0, logprobs=1)
            return response

    @settings(
        max_examples=int(HISTORIES or 8),
        derandomize=HISTORIES is None,
        phases=[Phase.generate, *([Phase.shrink] if HISTORIES else [])],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(histories)
    def check(history: list[tuple[Act, Act]]) -> None:
        with closing(Llama(path, **SETTINGS, **options)) as llm:
            scene = Scene(llm, fresh)
            for act, then in history:
                act(scene)
                then(scene)
            for text in ("again", "held"):
                answer((1, 270), 4, text, echo=False, scored=True)(scene)

    check()
