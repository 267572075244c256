"""A closed object: all that it offers raises, and nothing reaches memory that is freed."""

from __future__ import annotations

import gc
import inspect
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dropin
import pytest
from dropin import PROMPT, Make, text_of

from via_sd_local import Llama, Session, Settings
from via_sd_local.binding import import_llama_cpp
from via_sd_local.binding import llama as native

make = dropin.make
tiny_path = dropin.tiny_path

GREEDY: dict[str, Any] = {"max_tokens": 10, "temperature": 0}
CALLS: dict[str, tuple[Any, ...]] = {
    "create_chat_completion": ([{"role": "user", "content": "x"}],),
    "create_chat_completion_openai_v1": ([{"role": "user", "content": "x"}],),
    "create_completion": (PROMPT,),
    "create_embedding": ("x",),
    "detokenize": ([1, 270],),
    "embed": ("x",),
    "eval": ([1, 270],),
    "generate": ([1, 270],),
    "load_state": (None,),
    "set_cache": (None,),
    "set_seed": (1,),
    "tokenize": (b"x",),
}


def use(thing: Any, name: str) -> None:
    """Read an attribute, call it if it is a method, and read on if it gives an iterator."""
    member = getattr(thing, name)
    if callable(member):
        result = member(*CALLS.get(name, ()))
        if inspect.isgenerator(result):
            next(result)


def members(kind: type) -> list[str]:
    """The public methods and properties of a class, those of its bases included."""
    found = {name: inspect.getattr_static(kind, name) for name in dir(kind)}
    return [
        name
        for name, member in found.items()
        if not name.startswith("_") and name != "close" and (inspect.isfunction(member) or isinstance(member, property))
    ]


@pytest.mark.parametrize("embedding", [False, True])
def test_every_method_and_property_of_a_closed_object_raises(make: Make, embedding: bool) -> None:
    llm = make(embedding=embedding, logits_all=True)
    llm(PROMPT, **GREEDY)
    names = members(Llama)
    assert {"tokenize", "n_ctx", "ctx", "scores", "save_state", "embed", "tokenizer", "cache"} <= set(names)
    llm.close()
    for name in names:
        with pytest.raises(ValueError, match="has been closed"):
            use(llm, name)
    with pytest.raises(ValueError, match="has been closed"):
        llm(PROMPT)
    for name in ("n_tokens", "input_ids", "scores", "cache"):
        with pytest.raises(ValueError, match="has been closed"):
            setattr(llm, name, None)
    assert llm.model_path.endswith(".gguf")  # data that no native call needs
    assert isinstance(llm, Llama)
    llm.close()


def test_parts_of_a_closed_object_raise_too(make: Make) -> None:
    llm = make()
    tokenizer, own = llm.tokenizer(), import_llama_cpp("llama_tokenizer").LlamaTokenizer(llm)
    handler = llm._chat_handlers["chat_template.default"]
    stream, unread = llm(PROMPT, **GREEDY, stream=True), llm(PROMPT, **GREEDY, stream=True)
    chat = llm.create_chat_completion([{"role": "user", "content": "x"}], stream=True)  # type: ignore[arg-type]
    tokens = llm.generate([1, 270])
    next(stream)
    parts = {"model": llm._model, "context": llm._ctx, "batch": llm._batch}
    methods = {name: members(type(part)) for name, part in parts.items()}
    llm.close()
    for work in (
        lambda: tokenizer.encode("x"),
        lambda: tokenizer.decode([270]),
        lambda: own.tokenize(b"x"),
        lambda: handler(llama=llm, messages=[{"role": "user", "content": "x"}]),
        lambda: next(stream),
        lambda: next(unread),
        lambda: list(chat),
        lambda: next(tokens),
    ):
        with pytest.raises(ValueError, match="has been closed"):
            work()
    assert {name for names in methods.values() for name in names} >= {"tokenize", "token_eos", "n_ctx", "decode"}
    for name, part in parts.items():
        for method in methods[name]:
            with pytest.raises(ValueError, match="has been closed"):
                getattr(part, method)
    for part, handle in ((parts["model"], "vocab"), (parts["model"], "model"), (parts["context"], "ctx")):
        with pytest.raises(ValueError, match="has been closed"):
            getattr(part, handle)


def test_closing_waits_for_the_running_answer(make: Make) -> None:
    llm = make()
    expected = text_of(llm(PROMPT, **GREEDY))
    started, go_on = threading.Event(), threading.Event()

    def wait(_ids: Any, scores: Any) -> Any:
        started.set()
        assert go_on.wait(60)
        return scores

    results: list[str] = []
    answering = threading.Thread(target=lambda: results.append(text_of(llm(PROMPT, **GREEDY, logits_processor=[wait]))))
    answering.start()
    assert started.wait(60)
    closing = threading.Thread(target=llm.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    go_on.set()
    closing.join(60)
    answering.join(60)
    assert results == [expected]
    with pytest.raises(ValueError, match="has been closed"):
        llm(PROMPT)


def test_closing_within_a_callback_is_refused(make: Make) -> None:
    llm = make()

    def closes(_ids: Any, _scores: Any) -> bool:
        llm.close()
        return False

    with pytest.raises(RuntimeError, match="generating already"):
        llm(PROMPT, **GREEDY, stopping_criteria=[closes])
    assert text_of(llm(PROMPT, **GREEDY)) == text_of(make()(PROMPT, **GREEDY))


def test_closing_while_other_threads_tokenize_and_generate_crashes_nothing(make: Make) -> None:
    text = b"the sea and the land " * 200
    for _ in range(3):
        llm = make()
        calls: list[Callable[[], Any]] = [
            lambda llm=llm: llm.tokenize(text),
            lambda llm=llm: llm.detokenize([270] * 500),
            lambda llm=llm: llm(PROMPT, max_tokens=2, grammar='root ::= "a" | "b" | "c"'),
            lambda llm=llm: joined_after(llm),
        ]
        errors: list[BaseException] = []

        threads = [threading.Thread(target=repeat, args=(call, errors)) for call in calls]
        for thread in threads:
            thread.start()
        threads[0].join(0.05)
        llm.close()
        for thread in threads:
            thread.join(60)
        assert [str(error) for error in errors] == ["this Llama has been closed"] * 4


def repeat(call: Callable[[], Any], errors: list[BaseException]) -> None:
    """Repeat a call until it fails."""
    try:
        while True:
            call()
    except BaseException as error:
        errors.append(error)


def joined_after(llm: Llama) -> None:
    for _ in llm(PROMPT, max_tokens=3, temperature=0, stream=True):
        pass


def fails(llm: Llama) -> None:
    with pytest.raises(ValueError, match="exceed context window"):
        llm("x" * 5000)


USES: dict[str, Callable[[Llama], Any]] = {
    "nothing": lambda llm: None,
    "answer": lambda llm: llm(PROMPT, **GREEDY),
    "stream": lambda llm: list(llm(PROMPT, **GREEDY, stream=True)),
    "half a stream": lambda llm: next(llm(PROMPT, **GREEDY, stream=True)),
    "chat": lambda llm: llm.create_chat_completion([{"role": "user", "content": "x"}], max_tokens=3),  # type: ignore[arg-type]
    "grammar and logprobs": lambda llm: llm(PROMPT, max_tokens=3, grammar='root ::= "a"+', logprobs=2, echo=True),
    "by hand": lambda llm: (llm.eval([1, 270]), llm.sample(), llm.save_state(), llm.tokenizer().encode("x")),
    "cache": lambda llm: (llm.set_cache(import_llama_cpp("llama_cache").LlamaRAMCache()), llm(PROMPT, **GREEDY)),
    "error": fails,
    "callbacks": lambda llm: llm(
        PROMPT, **GREEDY, logits_processor=[lambda _, s: s + llm.n_tokens], stopping_criteria=lambda _, __: False
    ),
}


@pytest.mark.parametrize("kind", USES)
def test_an_object_that_nobody_holds_frees_its_memory_without_a_garbage_collection(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    freed: list[int] = []
    free = native.llama_model_free
    monkeypatch.setattr(native, "llama_model_free", lambda model: (freed.append(model), free(model)))
    options: dict[str, Any] = {"draft_model_path": str(tiny_path)} if kind == "answer" else {"drafter": "lookup"}
    gc.collect()
    gc.disable()
    try:
        llm = Llama(str(tiny_path), n_ctx=256, n_threads=1, verbose=False, use_mmap=False, draft_tokens=2, **options)
        USES[kind](llm)
        alive = weakref.ref(llm)
        del llm
        assert alive() is None
        assert freed
    finally:
        gc.enable()


CREATORS = {
    "llama_model_free": ("llama_model_load_from_file",),
    "llama_free": ("llama_init_from_model",),
    "llama_batch_free": ("llama_batch_init",),
    "llama_sampler_free": ("llama_sampler_chain_init", "llama_sampler_clone"),
}


@pytest.mark.parametrize("closes", [True, False])
def test_all_that_llama_cpp_allocates_for_an_object_is_freed(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, closes: bool
) -> None:
    counts: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            counts[name] += 1
            return function(*args)

        return call

    gc.collect()  # what earlier tests have left
    for name in (*CREATORS, *(creator for names in CREATORS.values() for creator in names)):
        monkeypatch.setattr(native, name, counted(name, getattr(native, name)))
    llm = Llama(str(tiny_path), n_ctx=256, n_threads=1, verbose=False, draft_model_path=str(tiny_path), draft_tokens=2)
    for kind, use_it in USES.items():
        if kind != "by hand":  # llama-cpp-python's own sampler waits for a garbage collection
            use_it(llm)
    half_read = llm(PROMPT, max_tokens=9, grammar='root ::= "abcdefghi"', stream=True)
    next(half_read)
    if closes:
        llm.close()
    del half_read, llm
    created = {name: sum(counts[creator] for creator in creators) for name, creators in CREATORS.items()}
    assert created == {name: counts[name] for name in CREATORS}
    assert all(created.values())


@pytest.mark.parametrize("name", ["stream", "complete", "prompt_tokens", "switch"])
def test_a_closed_session_raises(tiny_path: Path, name: str) -> None:
    settings = Settings(tiny_path, n_ctx=128, threads=1, drafter="lookup", mode="exact", mask="2-3")
    session = Session(settings)
    unread = session.stream("x")
    half_read = session.stream("x", max_tokens=20)
    next(half_read)
    parts = [session.model, session.engine, session.engine.verifier, session.engine.verifier.context]
    session.close()
    argument: Any = settings if name == "switch" else "x"
    with pytest.raises(ValueError, match="closed"):
        getattr(session, name)(argument)
    assert "".join(unread) == ""
    assert "".join(half_read) == ""
    model, engine, verifier, context = (part for part in parts)
    for work in (
        lambda: model.tokenize("x"),  # type: ignore[union-attr]
        lambda: model.token_text(5),  # type: ignore[union-attr]
        lambda: engine.generate([1]),  # type: ignore[union-attr]
        engine.reset,  # type: ignore[union-attr]
        lambda: verifier.full([1], 1),  # type: ignore[union-attr]
        lambda: context.decode([1], 0, 1),  # type: ignore[union-attr]
        context.clear,  # type: ignore[union-attr]
        lambda: context.remove(0),  # type: ignore[union-attr]
        lambda: context.set_mask(b""),  # type: ignore[union-attr]
        lambda: context.keep_layer_input(1),  # type: ignore[union-attr]
        lambda: context.layer_input(1),  # type: ignore[union-attr]
    ):
        with pytest.raises(ValueError, match="closed"):
            work()
    session.close()
