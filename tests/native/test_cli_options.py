"""The options of `via-sd-local complete`: each one does what its help says."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path
from typing import Any

import commands
import pytest
from commands import MODES, Run

from via_sd_local.catalog import fetching, lookup, registry
from via_sd_local.cli.options import settings_from
from via_sd_local.cli.placement_options import DRAFT, NAMES, VERIFIER
from via_sd_local.cli.program import build_parser
from via_sd_local.runtime import context
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.tiers.drafter import Draft
from via_sd_local.tiers.model_drafter import ModelDrafter

answer, files, run = commands.answer, commands.files, commands.run


def test_every_option_has_a_test_here() -> None:
    """A new option of `complete` needs a test; then add it to this list."""
    (commands,) = [a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    options = {option for action in commands.choices["complete"]._actions for option in action.option_strings}
    assert options == {
        *("-h", "--help", "--prompt", "--prompt-file", "--chat-template", "--raw", "--json", "--verifier", "--draft"),
        *(
            "--drafter",
            "--mode",
            "--mask",
            "--thresholds",
            "--profile",
            "--draft-tokens",
            "--n-ctx",
            "--threads",
            "--temperature",
        ),
        *("--seed", "--max-tokens", "--max-deviation", "--draft-mask", "--top-k", "--top-p", "--min-p", "--typical-p"),
        *("--repeat-penalty", "--frequency-penalty", "--presence-penalty", "--mirostat", "--grammar-file"),
        *(f"--{prefix}{name}" for prefix in (VERIFIER, DRAFT) for name in NAMES),  # tested in test_placement.py
        "--json-schema-file",
        "--ignore-memory",  # tested in test_footprint.py
        *("--router", "--remeasure", "--audit-every", "--write-through"),  # what they do: tests/pure/test_settings.py
    }


@pytest.mark.parametrize(
    ("options", "mode", "drafts"),
    [
        ((), "plain", False),
        (("--mode", "auto", "--drafter", "none"), "plain", False),
        (("--mode", "plain", "--drafter", "none"), "plain", False),
        (("--drafter", "lookup"), "sd", False),
        (("--drafter", "lookup", "--mode", "sd"), "sd", False),
        (("--draft", "{}"), "sd", True),
        (("--draft", "{}", "--drafter", "model"), "sd", True),
        (("--draft", "{}", "--drafter", "auto", "--mode", "exact", "--mask", "a1,f3,4"), "exact", True),
        (("--drafter", "lookup", "--mode", "tiered", "--mask", "a1"), "tiered", False),
        (("--drafter", "self", "--draft-mask", "1-3"), "sd", True),
        (("--drafter", "self", "--draft-mask", "1-3", "--mode", "tiered", "--mask", "a1"), "tiered", True),
        (("--drafter", "lookup+self", "--draft-mask", "1-3", "--mode", "exact", "--mask", "a1"), "exact", True),
        (("--drafter", "lookup+model", "--draft", "{}"), "sd", True),
    ],
)
def test_mode_and_drafter_auto_are_what_the_help_says(
    options: tuple[str, ...], mode: str, drafts: bool, answer: Run, files: Path
) -> None:
    options = tuple(option.format(files / "llama.gguf") for option in options)
    stats = answer(*options, "--json", max_tokens=30).json["stats"]
    assert stats["mode"] == mode
    assert (stats["passes"]["draft"]["calls"] > 0) == drafts
    assert (stats["drafted"] > 0) == (mode != "plain")


def test_the_draft_mask_decides_what_is_drafted(answer: Run) -> None:
    def stats(*options: str) -> dict[str, Any]:
        counted: dict[str, Any] = answer("--json", "--draft-tokens", 4, *options, max_tokens=40).json["stats"]
        return counted

    rates = [stats("--drafter", "self", "--draft-mask", mask)["rejection_rate"] for mask in ("f4", "1-4", "1-4")]
    assert rates[0] < rates[1] == rates[2]
    both = stats("--drafter", "lookup+self", "--draft-mask", "1-4")["drafters"]
    assert both["self"]["drafts"] > 0
    assert (
        sum(row["drafted"] for row in both.values())
        == stats("--drafter", "lookup+self", "--draft-mask", "1-4")["drafted"]
    )


@pytest.mark.parametrize("n", [1, 2, 5])
def test_draft_tokens_is_the_length_of_a_draft(n: int, answer: Run, files: Path) -> None:
    options = ("--draft", files / "llama.gguf", "--draft-tokens", n)
    stats = answer(*options, "--json", max_tokens=1 + 3 * (n + 1)).json["stats"]  # all is accepted: it drafts itself
    assert (stats["drafted"], stats["accepted"], stats["acceptance_length"]) == (3 * n, 3 * n, n + 1)


def test_a_draft_longer_than_the_context_does_no_harm(answer: Run, files: Path) -> None:
    for n_ctx in (40, 41, 42):
        options = ("--n-ctx", n_ctx, "--json", "--max-tokens", -1)
        plain = answer(*options).json
        for n in (n_ctx - 1, n_ctx, 1000):
            drafted = answer(*options, "--draft", files / "llama.gguf", "--draft-tokens", n).json
            assert (drafted["text"], drafted["usage"]) == (plain["text"], plain["usage"])
            assert drafted["stats"]["accepted"] > 0


def test_thresholds_decide_the_regions(answer: Run, files: Path) -> None:
    options = ("--draft", files / "llama.gguf", "--mode", "tiered", "--mask", "2-3", "--json", "--thresholds")

    def regions(rule: str) -> dict[str, int]:
        counts: dict[str, int] = answer(*options, rule, max_tokens=30).json["stats"]["regions"]
        return counts

    never_asks, always_asks, takes_all = regions("joint:0,0"), regions("joint:1,1"), regions("confidence:0,0")
    assert never_asks["C"] == 0 < never_asks["B"]
    assert always_asks["A"] == always_asks["B"] == always_asks["bonus"] == 0 < always_asks["C"]
    assert takes_all["B"] == takes_all["C"] == 0 < takes_all["A"]
    assert regions("joint:0.5,0.5") == answer(*options[:-1], max_tokens=30).json["stats"]["regions"]


def test_the_mask_decides_what_the_slim_tier_skips(answer: Run, files: Path) -> None:
    options = ("--draft", files / "llama.gguf", "--mode", "tiered", "--thresholds", "joint:0,0", "--json", "--mask")
    texts = [answer(*options, mask, max_tokens=30).json["text"] for mask in ("2-3", "a2,f2,3", "1", "a2")]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_threads_reach_both_models_contexts(answer: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Spy(Context):
        def __init__(self, model: Model, **options: Any) -> None:
            super().__init__(model, **options)
            seen.append(self.n_threads)

    monkeypatch.setattr(context, "Context", Spy)
    assert answer("--draft", files / "template.gguf", "--threads", 3).status == 0
    assert seen == [3, 3]


def test_a_seed_makes_a_temperature_reproducible(answer: Run) -> None:
    def text(*options: object) -> str:
        return str(answer("--json", "--temperature", 1, *options).json["text"])

    assert text("--seed", 1) == text("--seed", 1)
    assert len({text("--seed", seed) for seed in range(5)}) == 5
    assert len({text() for _ in range(5)}) > 1  # no seed: a fresh one every time
    assert answer("--json", "--temperature", 0, "--seed", 1).json["text"] == answer("--json").json["text"]


@pytest.mark.parametrize("mode", ["sd", "exact"])
def test_lossless_modes_give_the_sampled_text_of_plain_decoding(mode: str, answer: Run) -> None:
    options = ("--json", "--temperature", 0.8, "--seed", 3)
    assert answer(*options, *MODES[mode]).json["text"] == answer(*options).json["text"]


def test_a_larger_context_than_the_model_was_trained_for_is_warned_of(answer: Run) -> None:
    result = answer("--n-ctx", 1024)
    assert result.status == 0
    assert result.err.splitlines()[0] == "warning: --n-ctx is 1024, but llama.gguf was trained for 512 tokens"


@pytest.mark.parametrize("draft", [("--draft", "{}"), ("--drafter", "lookup")])
def test_a_recurrent_verifier_decodes_plainly_with_one_warning(
    draft: tuple[str, str], answer: Run, files: Path
) -> None:
    options = (draft[0], draft[1].format(files / "llama.gguf"), "--mode", "sd", "--json")
    result = answer(*options, verifier="mamba.gguf")
    assert result.status == 0
    assert result.err == "warning: mamba.gguf cannot be rolled back (recurrent or hybrid): decoding without drafts\n"
    got = json.loads(result.out)
    assert (got["stats"]["mode"], got["stats"]["drafted"]) == ("plain", 0)
    assert got["text"] == answer("--json", verifier="mamba.gguf").json["text"]


def test_a_drafter_that_fails_does_not_end_the_answer(
    answer: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    original = ModelDrafter.propose

    def fail_later(self: ModelDrafter, text: list[int], limit: int, *more: Any) -> Draft:
        calls.append(limit)
        if len(calls) > 1:
            raise RuntimeError("out of ideas")
        return original(self, text, limit, *more)

    monkeypatch.setattr(ModelDrafter, "propose", fail_later)
    result = answer("--draft", files / "llama.gguf", "--json")
    assert result.status == 0
    assert result.err == "warning: the drafter failed (out of ideas); going on without drafts\n"
    assert json.loads(result.out)["text"] == answer("--json").json["text"]
    assert len(calls) == 2


def test_a_model_of_the_catalogue_that_is_absent_is_fetched_as_by_the_chat(
    run: Run, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path))
    pulled: list[tuple[str, bool]] = []

    def pull(name: str, *, progress: bool) -> Path:
        pulled.append((name, progress))
        target = lookup.models_folder() / registry.registry().models[name].file
        target.parent.mkdir(exist_ok=True)
        shutil.copy(files / "llama.gguf", target)
        os.truncate(target, registry.registry().models[name].size)  # as large as the catalogue says
        return target

    monkeypatch.setattr(fetching, "pull", pull)
    common = ("complete", "the sea", "--max-tokens", 3, "--threads", 1)
    assert run(*common, "--json", "--draft", "gemma-3-270m", "--draft-tokens", 2).json["stats"]["mode"] == "sd"
    assert pulled == [("smollm2-135m", False), ("gemma-3-270m", False)]
    assert run(*common).status == 0
    assert len(pulled) == 2


def test_the_options_of_tiered_and_of_costs_become_settings() -> None:
    common = ("complete", "x", "--verifier", "v", "--drafter", "lookup", "--mode", "tiered", "--mask", "2")
    none = settings_from(build_parser().parse_args(common))
    assert (none.router, none.audit_every, none.write_through, none.remeasure) == (None, None, False, False)
    given = ("--router", "full-first", "--audit-every", "7", "--write-through", "--remeasure")
    some = settings_from(build_parser().parse_args([*common, *given]))
    assert (some.router, some.audit_every, some.write_through, some.remeasure) == ("full-first", 7, True, True)
