"""The benchmark of a profile's predictions runs what the profile says, each time from the beginning."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import profiles_made
import pytest
import tiny
from profiles_made import level
from test_benchmarks import load

from via_sd_local.engine.engine import Engine
from via_sd_local.engine.steps import Step
from via_sd_local.profiles.machine import machine
from via_sd_local.profiles.profile import CostTable, Speeds
from via_sd_local.runtime.fingerprint import Fingerprint

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
SECONDS = {kind: {"1": 0.01, "16": 0.02} for kind in ("draft", "full", "slim", "resume")}


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "bench"))
    spec = tiny.spec("llama", n_ctx_train=1024)
    options = {"overrides": {"tokenizer.chat_template": TEMPLATE}}
    return tiny.write(tmp_path / "v.gguf", spec, **options), tiny.write(tmp_path / "d.gguf", spec, **options)


def test_predictions_are_compared_with_what_the_modes_do(
    pair: tuple[Path, Path], profiles_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verifier, draft = pair
    profiles_made.put(
        profiles_folder,
        "x.json",
        verifier=Fingerprint.of(verifier),
        draft=Fingerprint.of(draft),
        speeds=Speeds(10.0, 20.0, 15.0, "joint:0.3,0.4"),
        levels=(level(0.02, "sd", None), level(0.05, "tiered", "joint:0.6,0.7", 25.0)),
        costs=(CostTable(machine(), 1, SECONDS),),
    )
    runs: list[tuple[str, float | None, str, tuple[int, ...], int]] = []
    generate = Engine.generate

    def watched(self: Engine, prompt: Sequence[int], **options: Any) -> Iterator[Step]:
        yield from generate(self, prompt, **options)
        policy = self.policy
        rule = f"{policy.rule.accept:g},{policy.rule.rewrite:g}"
        runs.append((policy.mode.value, policy.max_deviation, rule, tuple(prompt), self.stats.reused_tokens))

    monkeypatch.setattr(Engine, "generate", watched)
    options = ["--verifier", str(verifier), "--draft", str(draft), "--prompts", "2", "--tokens", "6", "--threads", "1"]
    assert load("predictions").main([*options, "--rounds", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {name: row["predicted"] for name, row in report.items()} == {
        "plain": 10.0,
        "sd": 20.0,
        "exact": 15.0,
        "tiered@0.05": 25.0,
    }
    for row in report.values():
        assert row["measured_by_predicted"] == pytest.approx(row["measured"] / row["predicted"])
        ratios = [mine / plain for mine, plain in zip(row["speeds"], report["plain"]["speeds"], strict=True)]
        assert row["worst_ratio"] == pytest.approx(min(ratios), rel=0.01)
    assert report["plain"]["deviation"] == 0
    assert len(runs) == 2 * 2 * 4
    assert len({prompt for *_, prompt, _ in runs}) == 2
    assert all(reused == 0 for *_, reused in runs)
    used = {mode: (budget, rule) for mode, budget, rule, _, _ in runs}
    assert used["tiered"] == (0.05, "0.6,0.7")
    assert used["exact"] == (None, "0.3,0.4")


def test_a_pair_without_a_profile_is_refused(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    verifier, draft = pair
    assert load("predictions").main(["--verifier", str(verifier), "--draft", str(draft)]) == 1
    assert "there is no profile of this pair" in capsys.readouterr().err
