"""The search on real models, and the ablation as a command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
from test_dimr_evaluation import naive, some_answers

from via_sd_local.calibration.dimr.answers import answers
from via_sd_local.calibration.dimr.evaluation import Evaluator
from via_sd_local.calibration.dimr.objective import kl, paired
from via_sd_local.calibration.dimr.search import SearchBudget, search
from via_sd_local.calibration.dimr.speed import Shares, speed_worth
from via_sd_local.calibration.dimr.texts import load_texts, split
from via_sd_local.calibration.top_logits import TopLogits
from via_sd_local.mask import LayerMask

BENCH = Path(__file__).parents[2] / "bench" / "dimr.py"


def test_smollm2_is_searched_end_to_end(smollm2, verifier, keep):
    """What is known of this model: its middle layers can be skipped, its first and last ones cannot."""
    made = answers(verifier(smollm2, n_ctx=512), split(load_texts())[0][::7], 12)
    evaluator = keep(Evaluator(smollm2, made, n_threads=1))
    assert (evaluator.full.best == evaluator.tokens).mean() > 0.9  # its own greedy text, but for near-ties
    ends, middle = (evaluator.score(LayerMask.parse(text, 30)) for text in ("0", "20"))
    assert middle.kl < 0.5 < ends.kl
    result = search(
        evaluator.score,
        30,
        SearchBudget(24),
        worth=speed_worth(Shares.of(smollm2.path)),
        skip_ratio=0.1,
        strategy="guided",
    )
    assert len(result.mask) == 6
    chance = [evaluator.score(next_mask).kl for next_mask in _random_masks(6, 5)]
    assert result.score.kl < min(chance)
    assert not {0, 29} & (result.mask.attn | result.mask.ffn)


def _random_masks(count: int, n: int) -> list[LayerMask]:
    rng = np.random.default_rng(0)
    chosen = [rng.choice(60, count, replace=False).tolist() for _ in range(n)]
    return [LayerMask.of(30, attn=(i // 2 for i in c if i % 2), ffn=(i // 2 for i in c if i % 2 == 0)) for c in chosen]


def test_on_gemma_blocks_in_one_batch_are_those_of_run_time(gemma, verifier, keep):
    """A sliding-window model whose logits move by up to 1.4 between batch shapes: compared as distributions."""
    made = answers(verifier(gemma, n_ctx=512), split(load_texts())[1][:1], 16)
    evaluator = keep(Evaluator(gemma, made, n_threads=1, block=4))
    rows = naive(verifier(gemma, "9,f12", n_ctx=512), made, 4)
    mask = LayerMask.parse("9,f12", gemma.n_layer)
    batched, one_by_one = evaluator.slim(mask), TopLogits.from_logits(rows)
    between = float(kl(*paired(batched, one_by_one)).mean())
    from_full = float(kl(*paired(evaluator.full, one_by_one)).mean())
    assert between < 0.2 * from_full


@pytest.mark.parametrize("name", ["gemma3", "qwen3moe", "phi3"])
def test_every_kind_of_model_is_searched_also_where_llama_cpp_refuses_masks(name, tiny_model, keep):
    model = tiny_model(tiny.spec(name, residual=0.3))
    evaluator = keep(Evaluator(model, some_answers(model.n_vocab), n_threads=1))
    n = model.n_layer
    worth = speed_worth(Shares.of(model.path))
    found = {
        strategy: search(evaluator.score, n, SearchBudget(70), worth=worth, strategy=strategy, skip_ratio=0.5)
        for strategy in ("guided", "random")
    }
    for result in found.values():
        assert len(result.mask) == n
        assert evaluator.score(result.mask) == result.score
    assert found["guided"].score.kl <= found["random"].score.kl  # of 924 masks in the small ones
    deep = search(evaluator.score, n, SearchBudget(60), worth=worth, strategy="random", skip_ratio=0.85)
    if name == "gemma3":  # 2 of 12 layers are global: many masks skip the attention of both
        assert any(trial.score is None for trial in deep.trials)
    assert len(deep.mask) == round(0.85 * 2 * n)


def test_the_ablation_is_printed_by_one_command(tmp_path):
    path = tiny.write(tmp_path / "m.gguf", tiny.spec("llama", residual=0.3))
    command = [sys.executable, str(BENCH), "--verifier", str(path), "--threads", "1"]
    options = ["--evaluations", "20", "--skip-ratio", "0.25", "--planted", "1,a2", "--random-masks", "3"]
    options += ["--tokens", "6", "--held-out", "6", "--logs", str(tmp_path / "logs")]
    run = subprocess.run([*command, *options, "--json"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    rows = {row["name"]: row for row in json.loads(run.stdout)}
    assert list(rows)[:4] == ["planted", "guided", "paper", "random"]
    assert all(rows[name]["skipped"] == 3 and rows[name]["evaluations"] == 20 for name in list(rows)[1:4])
    assert rows["random masks like guided's, mean of 3"]["kl"] > 0
    assert rows["guided"]["loss"] <= rows["random"]["loss"]
    again = subprocess.run([*command, *options], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert f"guided: {rows['guided']['mask']}" in again.stdout
    other = subprocess.run([*command, *options, "--tokens", "7"], capture_output=True, text=True)
    assert other.returncode == 1
    assert "answers.json has another model, text or number of tokens" in other.stderr
    broken = subprocess.run([*command, "--evaluations", "0"], capture_output=True, text=True)
    assert (broken.returncode, broken.stderr) == (1, "error: evaluations is 0; a search needs at least one\n")
