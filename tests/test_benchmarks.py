"""Benchmarks measure what they say: distinct prompts, and nothing left in a cache from the run before."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tiny

from via_sd_local.engine import Engine
from via_sd_local.generation import Step
from via_sd_local.model import Model

BENCH = Path(__file__).resolve().parents[1] / "bench"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_prompt_of_a_benchmark_comes_twice() -> None:
    tasks = [task["prompt"] for task in json.loads((BENCH / "tasks.json").read_text(encoding="utf-8"))]
    assert len(tasks) >= 20
    for prompts in (tasks, load("foundation").PROMPTS):
        assert len(set(prompts)) == len(prompts)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    spec = tiny.spec("llama", n_ctx_train=1024)
    return tiny.write(tmp_path / "model.gguf", spec, overrides={"tokenizer.chat_template": template})


def test_every_run_of_the_modes_starts_with_empty_caches(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: list[tuple[str, tuple[int, ...], int]] = []
    generate = Engine.generate

    def watched(self: Engine, prompt: Sequence[int], **options: Any) -> Iterator[Step]:
        yield from generate(self, prompt, **options)
        runs.append((self.policy.mode.value, tuple(prompt), self.stats.reused_tokens))

    monkeypatch.setattr(Engine, "generate", watched)
    options = ["--verifier", str(model), "--draft", str(model), "--configs", "plain", "sd", "--threads", "1", "--json"]
    assert load("modes").main([*options, "--prompts", "5", "--tokens", "12"]) == 0
    assert len(runs) == len({(mode, prompt) for mode, prompt, _ in runs}) == 10
    assert all(reused == 0 for _, _, reused in runs)
    assert set(json.loads(capsys.readouterr().out)["modes"]) == {"plain", "sd"}


STAND_IN = """#!{python}
import sys
arguments = sys.argv[1:]
option = lambda name: arguments[arguments.index(name) + 1]
assert (option("--temp"), option("-n"), option("-t"), option("--spec-draft-n-max")) == ("0", "12", "1", "3")
text = open(option("-f"), encoding="utf-8").read()
assert text.endswith(chr(10))
print("encoded", {counts!r}[text[:-1]], "tokens in    0.010 seconds", file=sys.stderr)
print("decoded   12 tokens in    0.012 seconds, speed:  1000.000 t/s", file=sys.stderr)
print("n_drafted = 9\\nn_accept  = 6", file=sys.stderr)
"""


def test_llama_cpps_speculative_example_is_read_and_compared(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stand-in for the program prints what it prints, at 1000 tokens a second, and checks how it is called."""
    tasks = [task["prompt"] for task in json.loads((BENCH / "tasks.json").read_text(encoding="utf-8"))]
    with closing(Model(model)) as loaded:
        counts = {task: len(loaded.tokenize_prompt(task)) for task in tasks}
    program = tmp_path / "llama-speculative-simple"
    program.write_text(STAND_IN.format(python=sys.executable, counts=counts), encoding="utf-8")
    program.chmod(0o755)
    options = ["--verifier", str(model), "--draft", str(model), "--program", str(program), "--threads", "1"]
    options += ["--lengths", "3", "--prompts", "3", "--tokens", "12", "--json"]
    assert load("llama_speculative").main(options) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report) == ["llama.cpp, 3", "sd, 3", "sd, automatic"]
    theirs = report["llama.cpp, 3"]
    assert (theirs["tokens_per_second"], theirs["ratio_to_best"]) == (pytest.approx(1000), 1.0)
    assert theirs["acceptance"] == pytest.approx(6 / 9)
    ours = report["sd, 3"]
    assert ours["ratio_to_same_length"] == pytest.approx(ours["tokens_per_second"] / 1000, rel=0.9)
    assert report["sd, automatic"]["ratio_to_same_length"] is None
