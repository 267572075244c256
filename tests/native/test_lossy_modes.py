"""Modes `lenient` and `viasd` through the command and the drop-in: what they need, and what they report."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import commands
import pytest
from commands import Run

from via_sd_local import Llama

answer, files, run = commands.answer, commands.files, commands.run


def test_viasd_asks_the_slim_tier_about_every_draft(answer: Run, files: Path) -> None:
    options = ("--draft", files / "llama.gguf", "--mode", "viasd", "--mask", "2-3", "--json")
    stats = answer(*options, max_tokens=30).json["stats"]
    assert stats["mode"] == "viasd"
    assert stats["passes"]["slim"]["calls"] == sum(stats["draft_lengths"].values()) > 0
    assert stats["lenient"] == 0


def test_lenient_needs_a_budget_but_no_mask(answer: Run, files: Path) -> None:
    options = ("--draft", files / "llama.gguf", "--mode", "lenient", "--json")
    stats = answer(*options, "--max-deviation", 0.2, max_tokens=30).json["stats"]
    assert (stats["mode"], stats["slim_deviation"], stats["passes"]["slim"]["calls"]) == ("lenient", None, 0)
    assert stats["lenient_deviation"] == stats["deviation"] == stats["lenient"] / stats["completion_tokens"]
    refused = answer(*options)
    assert (refused.status, refused.out) == (1, "")
    assert "--mode lenient needs a budget of deviations (--max-deviation), e.g. 0.05" in refused.err


def test_the_drop_in_takes_the_modes_their_router_and_audits(files: Path) -> None:
    path = str(files / "llama.gguf")
    common = {"draft_model_path": path, "n_ctx": 256, "verbose": False, "profile": None}
    with closing(Llama(path, mode="viasd", mask="a2", thresholds="paper:0.9,0.95", audit_every=4, **common)) as llm:
        llm("the sea", max_tokens=20, temperature=0)
        assert (llm.last_stats["mode"], llm.last_stats["no_slim"]) == ("viasd", None)
        assert sum(llm.last_stats["regions"].values()) > 0
        assert llm.last_stats["max_in_flight"] <= 4 + 5
        with pytest.raises(ValueError, match="logprobs are not available in mode viasd"):
            llm("the sea", max_tokens=2, logprobs=1)
    with pytest.raises(ValueError, match="router is 'cost'; in mode 'viasd' the slim tier is always first"):
        Llama(path, mode="viasd", mask="2-3", router="cost", **common)
    with closing(Llama(path, mode="lenient", max_deviation=0.2, logits_all=True, **common)) as llm:
        assert llm("the sea", max_tokens=4, logprobs=1)["choices"][0]["logprobs"]["tokens"]
        assert llm.last_stats["mode"] == "lenient"
