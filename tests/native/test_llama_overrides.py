"""Methods of `Llama` that users override are called as in llama-cpp-python, or a warning says that they are not."""

from __future__ import annotations

import itertools
import warnings
from contextlib import closing
from typing import Any

import dropin
import pytest
from dropin import PROMPT, Make, drafting, joined, says, text_of

from via_sd_local import Llama
from via_sd_local.binding import import_llama_cpp

make = dropin.make
tiny_path = dropin.tiny_path


def ram_cache() -> Any:
    return import_llama_cpp("llama_cache").LlamaRAMCache()


def test_a_cache_of_states_is_served_by_overridden_methods(make: Make) -> None:
    saving, loading, cache, calls = make(), make(), ram_cache(), []

    def save_state() -> Any:
        calls.append("save")
        return Llama.save_state(saving)

    def load_state(state: Any) -> None:
        calls.append("load")
        Llama.load_state(loading, state)

    saving.save_state, loading.load_state = save_state, load_state
    for llm in (saving, loading):
        llm.set_cache(cache)
    answers = [text_of(llm(PROMPT, max_tokens=8, temperature=0)) for llm in (saving, loading)]
    assert calls == ["save", "load"]
    assert answers[0] == answers[1]
    assert loading.last_stats["reused_tokens"] == len(loading.tokenize(PROMPT.encode())) - 1  # one gives logits


@pytest.mark.parametrize("stream", [False, True])
def test_an_overridden_detokenize_makes_the_text(make: Make, tiny_path: Any, stream: bool) -> None:
    class Shouts(Llama):
        def detokenize(self, *args: Any, **kwargs: Any) -> bytes:
            return super().detokenize(*args, **kwargs).upper()  # ASCII only

    answer = "é, ∞ and 🙂 stop here"  # characters of several tokens
    drafter = drafting(answer, 5)
    with closing(Shouts(str(tiny_path), n_ctx=256, n_threads=1, verbose=False, drafter=drafter)) as llm:
        result = llm(**says(llm, answer), stop=["HERE"], stream=stream)
        assert (joined(result) if stream else text_of(result)) == "é, ∞ AND 🙂 STOP "


@pytest.mark.parametrize("name", ["generate", "eval", "sample", "reset"])
@pytest.mark.parametrize("way", ["subclass", "object"])
def test_methods_that_the_engine_does_not_call_are_named_in_a_warning(make: Make, name: str, way: str) -> None:
    llm = make()
    original = getattr(llm, name)
    if way == "object":
        setattr(llm, name, lambda *args, **kwargs: original(*args, **kwargs))
    else:
        llm.__class__ = type("Mine", (Llama,), {name: lambda self, *args: original(*args)})
    with pytest.warns(RuntimeWarning, match=f"^{name} is overridden, but create_completion does not call it"):
        llm(PROMPT, max_tokens=1)
    if name != "generate":
        with pytest.warns(RuntimeWarning, match=f"{name} is overridden, but generate does not call it"):
            list(itertools.islice(llm.generate([1, 5]), 1))


def test_other_methods_may_be_overridden_without_a_warning(make: Make) -> None:
    llm = make()
    llm.token_nl = llm.n_embd = llm.set_seed = lambda *_args: 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert llm(PROMPT, max_tokens=1, temperature=0)["usage"]["completion_tokens"] == 1
