"""Benchmarks measure what they say: distinct prompts, and nothing left in a cache from the run before."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import profiles_made
import pytest
import tiny

from via_sd_local.engine.engine import Engine
from via_sd_local.engine.steps import Step
from via_sd_local.runtime.fingerprint import Fingerprint
from via_sd_local.runtime.model import Model
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.prompt_lookup import PromptLookup

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))  # as `python bench/NAME.py` does


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_prompt_of_a_benchmark_comes_twice() -> None:
    known = json.loads((BENCH / "tasks.json").read_text(encoding="utf-8"))
    assert len(known) >= 20
    for prompts in (
        [task["prompt"] for task in known],
        load("foundation").PROMPTS,
        list_of(load("streaming").prompts()),
    ):
        assert len(set(prompts)) == len(prompts)
    tasks = load("prompts").tasks
    for n in (1, 7, len(known)):
        assert len({task["prompt"] for task in tasks(n)}) == n
    for n in (0, len(known) + 1):
        with pytest.raises(SystemExit, match=f"--prompts is {n}; tasks.json has {len(known)}, and none is used"):
            tasks(n)


def list_of(prompts: Iterator[str]) -> list[str]:
    """All of them, until the benchmark gives up."""
    made: list[str] = []
    with pytest.raises(SystemExit, match="ask for fewer repeats"):
        made.extend(prompts)  # what came before stays
    return made


@dataclass(frozen=True)
class Run:
    """A generation as it begins: by which engine, from what prompt, and how many tokens caches and indices hold."""

    engine: int
    prompt: tuple[int, ...]
    held: tuple[int, ...]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Every generation from now on."""
    seen: list[Run] = []
    generate = Engine.generate

    def watched(self: Engine, prompt: Sequence[int], **options: Any) -> Iterator[Step]:
        held = [len(self.verifier.cells)]
        for drafter in self.drafters:
            if isinstance(drafter, ModelDrafter):
                held.append(len(drafter.cache.cells))
            elif isinstance(drafter, PromptLookup):
                held.append(len(drafter._text))
        seen.append(Run(id(self), tuple(prompt), tuple(held)))
        yield from generate(self, prompt, **options)

    monkeypatch.setattr(Engine, "generate", watched)
    return seen


def check(runs: list[Run], count: int, *, of_each: int = 1, caches: int = 1) -> None:
    """So many generations, in which an engine sees a prompt so often; all begin with so many caches, empty."""
    assert len(runs) == count
    assert len({(run.engine, run.prompt) for run in runs}) == count // of_each
    assert {run.held for run in runs} == {(0,) * caches}


WATCHED = {"modes", "llama_speculative", "foundation", "streaming", "coupling", "simulate", "predictions", "overhead"}


def test_every_benchmark_that_generates_is_watched_below() -> None:
    sources = {path.stem: path.read_text(encoding="utf-8") for path in BENCH.glob("*.py")}
    assert {name for name, text in sources.items() if ".generate(" in text or '"complete"' in text} == WATCHED


@pytest.fixture
def model(tmp_path: Path) -> Path:
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    spec = tiny.spec("llama", n_ctx_train=1024)
    return tiny.write(tmp_path / "model.gguf", spec, overrides={"tokenizer.chat_template": template})


def test_every_measurement_of_the_overhead_starts_with_empty_caches(
    runs: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--vocab", "950", "--context", "16", "--tokens", "12", "--rounds", "1", "--json"]
    assert load("overhead").main(options) == 0
    assert len(runs) == 6
    assert all(set(run.held) == {0} for run in runs)
    (row,) = json.loads(capsys.readouterr().out)
    assert row["vocab"] == 950
    assert len(row) == 2 + 6
    assert min(row.values()) > 0


@pytest.mark.parametrize("draft", [True, False], ids=["model", "lookup"])
def test_every_run_of_the_modes_starts_with_empty_caches(
    draft: bool, model: Path, runs: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--verifier", str(model), "--configs", "plain", "sd", "sd:3", "--threads", "1", "--json"]
    options += ["--draft", str(model)] if draft else []
    assert load("modes").main([*options, "--prompts", "5", "--tokens", "12"]) == 0
    check(runs, 15, caches=2)
    assert set(json.loads(capsys.readouterr().out)["modes"]) == {"plain", "sd", "sd:3"}


def test_every_run_of_the_predictions_starts_with_empty_caches(
    model: Path, tmp_path: Path, runs: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    known = Fingerprint.of(model)
    profile = profiles_made.put(tmp_path, "made.json", verifier=known, draft=known)
    options = ["--verifier", str(model), "--draft", str(model), "--profile", str(profile), "--threads", "1", "--json"]
    assert load("predictions").main([*options, "--prompts", "2", "--tokens", "6", "--rounds", "2"]) == 0
    modes = json.loads(capsys.readouterr().out)
    assert {"plain", "sd", "exact"} < set(modes)
    assert {run.held for run in runs} == {(0,), (0, 0)}
    assert len(runs) == 2 * 2 * len(modes)  # each prompt again in every round
    assert len({(run.engine, run.prompt) for run in runs}) == 2 * len(modes)


@pytest.mark.parametrize("drafter", ["none", "lookup"])
def test_every_run_of_the_streams_starts_with_empty_caches(
    drafter: str, model: Path, runs: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", str(model), "--tokens", "12", "20", "--repeats", "3", "--drafter", drafter, "--json"]
    assert load("streaming").main(options) in (0, 1)
    check(runs, 2 * (1 + 2 * 3), of_each=2, caches=1 + (drafter == "lookup"))  # without the stream, and with it
    assert [row["tokens"] for row in json.loads(capsys.readouterr().out)] == [12, 20]


def test_the_texts_that_are_compared_or_recorded_start_with_empty_caches(
    model: Path, tmp_path: Path, runs: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--verifier", str(model), "--draft", str(model), "--prompts", "3", "--tokens", "4", "--threads", "1"]
    assert load("coupling").main([*common, "--temperatures", "0.7", "--top-k", "0"]) == 0
    check(runs, 3)
    runs.clear()
    assert load("simulate").main(["record", *common, "--mask", "3", "-o", str(tmp_path / "recording.npz")]) == 0
    check(runs, 3)
    capsys.readouterr()


def test_every_run_of_the_foundation_has_a_process_and_a_prompt_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    foundation = load("foundation")
    commands: list[list[str]] = []

    def ran(command: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command[3:])
        stats = {"overhead_seconds": 0.1, "seconds": 1.0, "completion_tokens": 9, "first_token_seconds": 0.2}
        return subprocess.CompletedProcess(command, 0, json.dumps({"stats": stats}), "1024")

    monkeypatch.setattr(subprocess, "run", ran)
    assert foundation.main(["--rounds", "7", "--json"]) == 0
    assert len(commands) == len({tuple(command) for command in commands}) == 7 * len(foundation.RUNS)
    assert len({command[command.index("--prompt") + 1] for command in commands}) == 7
    with pytest.raises(SystemExit):
        foundation.main(["--rounds", "8"])
    assert "there are 7 prompts, and none is used twice" in capsys.readouterr().err


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
    model: Path, tmp_path: Path, runs: list[Run], capsys: pytest.CaptureFixture[str]
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
    check(runs, 2 * 3, caches=2)
    report = json.loads(capsys.readouterr().out)
    assert list(report) == ["llama.cpp, 3", "sd, 3", "sd, automatic"]
    theirs = report["llama.cpp, 3"]
    assert (theirs["tokens_per_second"], theirs["ratio_to_best"]) == (pytest.approx(1000), 1.0)
    assert theirs["acceptance"] == pytest.approx(6 / 9)
    ours = report["sd, 3"]
    assert ours["ratio_to_same_length"] == pytest.approx(ours["tokens_per_second"] / 1000, rel=0.9)
    assert report["sd, automatic"]["ratio_to_same_length"] is None


def test_the_memory_of_reloading_is_measured_after_each_load(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reloading = load("reloading")
    assert reloading.main(["--loads", "6", "--json"]) == 0
    held = json.loads(capsys.readouterr().out)
    assert len(held) == 6
    assert min(held) > 1 << 20
    for last, status in ((104, 0), (106, 1)):
        monkeypatch.setattr(
            reloading, "memory_after_loads", lambda *_args, last=last: iter([50, 60, 70, 80, 100, last])
        )
        assert reloading.main(["--loads", "6"]) == status
