"""The drop-in against llama-cpp-python's own class: text, finish reason, usage, log-probabilities, shapes."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import parity_cases
import pytest
from oracle import near_ties
from parity_cases import CASES, GEMMA, Case, arguments

from via_sd_local import Llama
from via_sd_local.binding import import_llama_cpp
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.sampling.factory import make_sampler
from via_sd_local.sampling.params import SamplingParams

llama_cpp = import_llama_cpp("llama")
Answers = dict[str, Any]


def reference(model: Path, cases: list[Case]) -> Answers:
    task = json.dumps({"model": str(model), "cases": [case.name for case in cases]})
    script = Path(parity_cases.__file__).with_name("reference.py")
    done = subprocess.run([sys.executable, str(script)], input=task, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    answers: Answers = json.loads(done.stdout)
    return answers


def load(path: Path, **options: Any) -> Llama:
    return Llama(str(path), n_ctx=512, n_threads=1, n_threads_batch=1, verbose=False, seed=1, **options)


@pytest.fixture(scope="module")
def smollm2_reference(smollm2_path: Path) -> Answers:
    return reference(smollm2_path, CASES)


@pytest.fixture(scope="module")
def gemma_reference(gemma_path: Path) -> Answers:
    return reference(gemma_path, GEMMA)


@pytest.fixture(scope="module")
def plain(smollm2_path: Path) -> Iterator[Llama]:
    llm = load(smollm2_path)
    yield llm
    llm.close()


@pytest.fixture(scope="module")
def drafting(smollm2_path: Path) -> Iterator[Llama]:
    llm = load(smollm2_path, drafter="lookup", draft_tokens=3)
    yield llm
    llm.close()


@pytest.fixture(scope="module")
def gemma_plain(gemma_path: Path) -> Iterator[Llama]:
    llm = load(gemma_path)
    yield llm
    llm.close()


def run(llm: Llama, case: Case) -> Any:
    answer = getattr(llm, case.method)(**arguments(case.options, llama_cpp))
    return answer if isinstance(answer, dict) else list(answer)


def shape(value: Any) -> Any:
    """The keys and types of a response; numbers are numbers."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items() if key != "via_sd"}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def parts(answer: Any) -> list[dict[str, Any]]:
    return answer if isinstance(answer, list) else [answer]


def text_of(answer: Any) -> str:
    texts = []
    for part in parts(answer):
        choice = part["choices"][0]
        said = choice.get("message") or choice.get("delta")
        if said is None:
            texts.append(choice["text"])
            continue
        texts.append(said.get("content") or "")
        for call in said.get("tool_calls") or []:
            texts.append(call["function"]["arguments"])
    return "".join(texts)


def logprobs_of(answer: Any) -> tuple[list[str], list[float], list[dict[str, float]]]:
    """Of text and chat completions alike: tokens, their values, the best ones by text."""
    tokens: list[str] = []
    values: list[float] = []
    best: list[dict[str, float]] = []
    for part in parts(answer):
        found = part["choices"][0]["logprobs"]
        if found is None:
            continue
        if "content" in found:
            for entry in found["content"]:
                tokens.append(entry["token"])
                values.append(entry["logprob"])
                best.append({other["token"]: other["logprob"] for other in entry["top_logprobs"]})
        else:
            tokens += found["tokens"]
            values += found["token_logprobs"]
            best += found["top_logprobs"]
    return tokens, values, best


def counts(answer: dict[str, Any]) -> dict[str, int]:
    return {name: value for name, value in answer["usage"].items() if name != "via_sd"}


def compare(llm: Llama, case: Case, theirs: Any, is_near_tie: Callable[[], bool]) -> None:
    ours = run(llm, case)
    if text_of(ours) != text_of(theirs):
        assert is_near_tie(), f"{text_of(ours)!r} instead of {text_of(theirs)!r}"
        return
    assert parts(ours)[-1]["choices"][0]["finish_reason"] == parts(theirs)[-1]["choices"][0]["finish_reason"]
    assert [shape(part) for part in (parts(ours)[0], parts(ours)[-1])] == [
        shape(part) for part in (parts(theirs)[0], parts(theirs)[-1])
    ]
    assert {part["model"] for part in parts(ours)} == {part["model"] for part in parts(theirs)}
    assert len({part["id"] for part in parts(ours)}) == 1
    if isinstance(theirs, dict):
        assert counts(ours) == counts(theirs)
    tokens, values, best = logprobs_of(ours)
    their_tokens, their_values, their_best = logprobs_of(theirs)
    assert tokens == their_tokens
    assert values == pytest.approx(their_values, abs=1e-3)
    for mine, other in zip(best, their_best, strict=True):
        assert mine == pytest.approx(other, abs=1e-3)


def checker(llm: Llama, case: Case) -> Callable[[], bool]:
    """Whether what the drop-in generated last is a correct greedy text, too."""

    def check() -> bool:
        options = arguments(case.options, llama_cpp)
        if options["temperature"] > 0 or "grammar" in options or "tools" in options or "response_format" in options:
            return False
        stats = llm.last_stats
        n, m = stats["prompt_tokens"], stats["completion_tokens"]
        text = llm.input_ids[: n + m].tolist()
        names = ("repeat_penalty", "frequency_penalty", "presence_penalty")
        bias = tuple((int(token), value) for token, value in options.get("logit_bias", {}).items())
        params = SamplingParams(logit_bias=bias, **{name: options[name] for name in names if name in options})
        with closing(Model(llm.model_path)) as model, closing(Context(model, n_ctx=512, n_threads=1)) as context:
            sampler = make_sampler(model, params, text[:n], options.get("logits_processor", ()))
            with closing(sampler):
                near_ties(context, text[:n], text[n:], sampler)
        return True

    return check


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_call_gets_the_same_answer(case: Case, plain: Llama, smollm2_reference: Answers) -> None:
    compare(plain, case, smollm2_reference[case.name], checker(plain, case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_call_gets_the_same_answer_with_drafts(
    case: Case, drafting: Llama, smollm2_reference: Answers
) -> None:
    compare(drafting, case, smollm2_reference[case.name], checker(drafting, case))


@pytest.mark.parametrize("case", GEMMA, ids=lambda case: case.name)
def test_the_same_call_gets_the_same_answer_of_another_architecture(
    case: Case, gemma_plain: Llama, gemma_reference: Answers
) -> None:
    compare(gemma_plain, case, gemma_reference[case.name], checker(gemma_plain, case))


def test_every_argument_occurs_in_some_case() -> None:
    original = import_llama_cpp("llama").Llama
    for method in ("create_completion", "create_chat_completion"):
        known = set(inspect.signature(getattr(original, method)).parameters) - {"self"}
        used = {name for case in CASES if case.method == method for name in case.options}
        # the last ones are compared by test_llama_completion, since the original is at fault there
        assert known - used <= {"suffix"}
    assert len(CASES) >= 60


def test_both_say_the_same_context_size(plain: Llama, smollm2_reference: Answers) -> None:
    assert plain.n_ctx() == smollm2_reference["n_ctx"]
