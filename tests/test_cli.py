"""The command `via-sd-local` as its user sees it: what it prints where, and the exit status."""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from tiny_vocab import vocabulary

from via_sd_local import binding, cli, complete, console, doctor, drafters, tiers
from via_sd_local.context import Context
from via_sd_local.model import Model

LLAMA = tiny.spec("llama")
COMMAND = Path(sys.executable).with_name("via-sd-local")
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
PROMPT = "the sea the sea the sea"
MASKED = ("--drafter", "lookup", "--mask", "2-3")
MODES: dict[str, tuple[str, ...]] = {
    "plain": (),
    "sd": ("--drafter", "lookup"),
    "exact": (*MASKED, "--mode", "exact"),
    "tiered": (*MASKED, "--mode", "tiered"),
}


@dataclass(frozen=True, slots=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert (self.status, self.err) == (0, "")
        assert self.out.count("\n") == 1
        return json.loads(self.out)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tiny models, sound and broken, and of files that are none."""
    folder = tmp_path_factory.mktemp("models")
    tiny.write(folder / "llama.gguf", LLAMA)
    tiny.write(folder / "template.gguf", LLAMA, overrides={"tokenizer.chat_template": TEMPLATE})
    tiny.write(folder / "mamba.gguf", tiny.spec("mamba"))
    tiny.write(folder / "other.gguf", LLAMA, vocab=vocabulary(320).with_token(300, "xyz"))
    tiny.write(folder / "vocabulary.gguf", LLAMA, {})
    tiny.write_truncated(folder / "truncated.gguf", LLAMA)
    tiny.write_unknown_arch(folder / "nonesuch.gguf", LLAMA)
    tiny.write_text(folder / "text.gguf")
    tiny.write_empty(folder / "empty.gguf")
    (folder / "template.jinja").write_text(TEMPLATE, encoding="utf-8")
    (folder / "refuses.jinja").write_text("{{ raise_exception('no\nsystem role') }}", encoding="utf-8")
    (folder / "unparsable.jinja").write_text("{% for", encoding="utf-8")
    (folder / "latin1.txt").write_bytes("Müll".encode("latin-1"))
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """`run("models", "list")` is the command line in this process."""

    def call(*arguments: object) -> Result:
        status = cli.main([str(argument) for argument in arguments])
        return Result(status, *capsys.readouterr())

    return call


@pytest.fixture
def answer(run: Callable[..., Result], files: Path) -> Callable[..., Result]:
    """`answer("--json")` completes PROMPT with a tiny model; later options override."""

    def call(*options: object, verifier: str = "llama.gguf", prompt: str = PROMPT, max_tokens: int = 12) -> Result:
        common = ("--verifier", files / verifier, "--prompt", prompt, "--max-tokens", max_tokens, "--threads", 1)
        return run("complete", *common, "--draft-tokens", 3, *options)

    return call


Run = Callable[..., Result]


def spawn(*arguments: object, **options: Any) -> Result:
    """The same in a process of its own."""
    command = [str(part) for part in (COMMAND, *arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)
    return Result(done.returncode, done.stdout, done.stderr)


def greedy(path: Path, prompt: str, n: int) -> tuple[list[int], str, int]:
    """By llama.cpp alone: what follows the prompt at temperature 0, its text, and the prompt's length."""
    with closing(Model(path)) as model, closing(Context(model, n_ctx=256, n_threads=1)) as context:
        tokens = model.tokenize(prompt)
        made = [int(context.decode(tokens, 0, 1)[0].argmax())]
        while len(made) < n:
            made.append(int(context.decode(made[-1:], len(tokens) + len(made) - 1, 1)[0].argmax()))
        return made, model.detokenize(made), len(tokens)


#
# complete: the answer
#


@pytest.mark.parametrize("mode", ["plain", "sd", "exact"])
def test_the_answer_is_the_models_own_greedy_continuation(mode: str, answer: Run, files: Path) -> None:
    _, text, n_prompt = greedy(files / "llama.gguf", PROMPT, 12)
    result = answer(*MODES[mode], "--json").json
    assert result["text"] == text
    assert result["finish_reason"] == "length"
    assert result["usage"] == {"prompt_tokens": n_prompt, "completion_tokens": 12, "total_tokens": n_prompt + 12}


def test_the_streamed_text_is_the_text_of_the_json_object_wherever_it_is_cut(answer: Run) -> None:
    for n in range(40):
        text = answer("--json", max_tokens=n).json["text"]
        streamed = answer(max_tokens=n)
        assert (streamed.status, streamed.out, streamed.err) == (0, text + "\n", "")


def test_a_character_of_several_tokens_arrives_whole(answer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [bytes([byte]) for byte in "é😀日".encode()]
    made = iter(pieces)
    monkeypatch.setattr(Model, "piece", lambda _self, _token: next(made))
    assert answer("--json", max_tokens=len(pieces)).json["text"] == "é😀日"
    made = iter(pieces)
    assert answer(max_tokens=len(pieces)).out == "é😀日\n"
    made = iter(pieces)
    assert answer(max_tokens=len(pieces) - 1).out == "é😀\ufffd\n"


def test_each_piece_is_shown_as_soon_as_it_is_known(answer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    screen = io.StringIO()
    monkeypatch.setattr(screen, "flush", lambda: written.append(screen.getvalue()))
    monkeypatch.setattr(sys, "stdout", screen)
    answer("--raw", max_tokens=6)
    assert len(written) >= 6
    assert len(set(written)) >= 4
    assert all(screen.getvalue().startswith(part) for part in written)


@pytest.mark.parametrize("mode", MODES)
def test_the_json_object_has_these_keys_and_no_others(mode: str, answer: Run) -> None:
    result = answer(*MODES[mode], "--json").json
    assert list(result) == ["text", "finish_reason", "usage", "stats"]
    stats = result["stats"]
    assert stats["mode"] == mode
    assert set(stats) == {
        *("mode", "prompt_tokens", "reused_tokens", "completion_tokens", "drafted", "accepted", "regions"),
        *("rejection_rate", "acceptance_length", "passes", "prefill_seconds", "first_token_seconds", "seconds"),
        *("tokens_per_second", "overhead_seconds", "blocks"),
        *("audits", "audited", "deviations", "deviation", "overshoot", "tightened"),
    }
    assert set(stats["regions"]) == {"A", "B", "C", "bonus"}
    assert set(stats["passes"]) == {"draft", "slim", "full", "resume"}
    assert all(set(count) == {"calls", "tokens", "seconds"} for count in stats["passes"].values())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drafter", ["lookup", "model"])
def test_the_numbers_agree_with_each_other(mode: str, drafter: str, answer: Run, files: Path) -> None:
    options = list(MODES[mode])
    if drafter == "model" and "lookup" in options:
        options[1:2] = ["model", "--draft", str(files / "llama.gguf")]
    result = answer(*options, "--json", max_tokens=30).json
    usage, stats, passes = result["usage"], result["stats"], result["stats"]["passes"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert (stats["prompt_tokens"], stats["completion_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert usage["completion_tokens"] == 30
    assert stats["reused_tokens"] == 0

    in_passes = sum(count["seconds"] for count in passes.values())
    assert 0 < stats["first_token_seconds"] <= stats["seconds"]
    assert 0 < stats["prefill_seconds"] <= stats["seconds"]  # the drafter's own prefill comes after the first token
    assert stats["overhead_seconds"] >= 0
    assert stats["seconds"] == pytest.approx(stats["prefill_seconds"] + in_passes + stats["overhead_seconds"])
    assert stats["tokens_per_second"] == pytest.approx(29 / (stats["seconds"] - stats["prefill_seconds"]))
    for count in passes.values():
        assert (count["calls"] > 0) == (count["tokens"] > 0) == (count["seconds"] > 0)
        assert count["tokens"] >= count["calls"]

    assert 0 <= stats["accepted"] <= stats["drafted"]
    if mode == "plain":
        assert (stats["drafted"], stats["rejection_rate"], stats["acceptance_length"]) == (0, None, 1.0)
        assert (passes["full"]["calls"], passes["full"]["tokens"]) == (29, 29)
        assert passes["draft"]["calls"] == 0
    else:
        assert stats["drafted"] > 0
        assert stats["rejection_rate"] == pytest.approx(1 - stats["accepted"] / stats["drafted"])
        assert 1 <= stats["acceptance_length"] <= 29
        assert (passes["draft"]["calls"] > 0) == (drafter == "model")
    assert (passes["slim"]["calls"] > 0) == (mode in ("exact", "tiered"))
    assert (sum(stats["regions"].values()) > 0) == (mode in ("exact", "tiered"))
    if mode == "sd" and drafter == "model":  # it drafts for itself: all is accepted, 3 drafts and a bonus a block
        assert (stats["rejection_rate"], passes["full"]["calls"]) == (0, 8)


def test_the_drafters_own_prefill_is_not_counted_among_the_draft_passes(answer: Run, files: Path) -> None:
    passes = answer("--draft", files / "llama.gguf", "--json", max_tokens=8).json["stats"]["passes"]
    long = answer("--draft", files / "llama.gguf", "--json", max_tokens=8, prompt=PROMPT * 5).json["stats"]["passes"]
    assert long["draft"]["tokens"] - passes["draft"]["tokens"] < 5


def test_plain_decoding_emits_one_token_a_block_also_when_it_stops_by_itself(answer: Run) -> None:
    result = answer("--json", verifier="mamba.gguf", prompt="the sea", max_tokens=50).json
    assert result["finish_reason"] == "stop"
    assert result["stats"]["acceptance_length"] == 1


@pytest.mark.parametrize("end", ["eos", "eot"])
@pytest.mark.parametrize("mode", ["plain", "sd", "exact"])
def test_every_end_token_ends_the_answer_and_is_not_part_of_it(
    end: str, mode: str, answer: Run, files: Path, tmp_path: Path
) -> None:
    tokens, _, _ = greedy(files / "llama.gguf", PROMPT, 12)
    at = next(i for i in range(3, 12) if tokens[i] not in tokens[:i])
    vocab = vocabulary(320)
    vocab = replace(vocab, eos=tokens[at]) if end == "eos" else vocab.with_eot(tokens[at])
    path = tiny.write(tmp_path / "ends.gguf", LLAMA, vocab=vocab)
    result = answer(*MODES[mode], "--json", "--verifier", path).json
    assert (result["finish_reason"], result["usage"]["completion_tokens"]) == ("stop", at)
    with closing(Model(path)) as model:
        assert result["text"] == model.detokenize(tokens[:at])


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("mode", MODES)
def test_max_tokens_is_never_exceeded_and_may_be_0(mode: str, n: int, answer: Run) -> None:
    result = answer(*MODES[mode], "--draft-tokens", 7, "--json", max_tokens=n).json
    assert (result["usage"]["completion_tokens"], result["finish_reason"]) == (n, "length")
    assert (result["text"] == "") == (n == 0)
    assert (result["stats"]["prefill_seconds"] == 0) == (n == 0)
    if n < 2:
        assert (result["stats"]["tokens_per_second"], result["stats"]["acceptance_length"]) == (None, None)


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_without_limit_ends_with_the_context(mode: str, answer: Run) -> None:
    result = answer(*MODES[mode], "--n-ctx", 45, "--json", max_tokens=-1).json
    assert (result["usage"]["total_tokens"], result["finish_reason"]) == (45, "length")


def test_an_answer_has_at_most_512_tokens_unless_told_otherwise(run: Run, tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", tiny.spec("llama", n_ctx_train=1024))
    usage = run("complete", "--verifier", path, "--threads", 1, "--prompt", PROMPT, "--json").json["usage"]
    assert usage["completion_tokens"] == 512


#
# complete: the prompt
#


def test_the_prompt_comes_from_an_argument_a_file_or_standard_input(
    answer: Run, run: Run, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = "naïve sea 😀\n\n"
    path = tmp_path / "prompt.txt"
    path.write_bytes(prompt.encode())
    common = ("complete", "--verifier", files / "llama.gguf", "--max-tokens", 12, "--threads", 1, "--json")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(prompt.encode()), encoding="ascii"))
    results = [
        answer("--json", prompt=prompt).json,
        run(*common, "--prompt-file", path).json,
        run(*common, "--prompt-file", "-").json,
    ]
    assert results[0]["text"] == results[1]["text"] == results[2]["text"]
    assert results[0]["usage"] == results[1]["usage"] == results[2]["usage"]
    assert results[0]["text"] != answer("--json").json["text"]


def test_a_model_with_a_template_gets_its_prompt_in_it_unless_raw(answer: Run, files: Path) -> None:
    prompt = "the sea"
    _, templated, n_templated = greedy(files / "llama.gguf", f"user: {prompt}\nassistant:", 12)
    _, raw, n_raw = greedy(files / "llama.gguf", prompt, 12)
    assert templated != raw
    for options, verifier, text, n in [
        ((), "template.gguf", templated, n_templated),
        (("--raw",), "template.gguf", raw, n_raw),
        ((), "llama.gguf", raw, n_raw),
        (("--raw",), "llama.gguf", raw, n_raw),
        (("--chat-template", files / "template.jinja"), "llama.gguf", templated, n_templated),
    ]:
        result = answer(*options, "--json", verifier=verifier, prompt=prompt).json
        assert (result["text"], result["usage"]["prompt_tokens"]) == (text, n), (options, verifier)


def test_a_given_template_goes_before_the_models_own(answer: Run, files: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jinja"
    other.write_text("{{ messages[0].content }} end", encoding="utf-8")
    _, text, _ = greedy(files / "llama.gguf", "the sea end", 12)
    given = answer("--chat-template", other, "--json", verifier="template.gguf", prompt="the sea").json
    assert given["text"] == text


def test_special_tokens_are_recognised_in_a_template_and_not_in_a_raw_prompt(
    answer: Run, files: Path, tmp_path: Path
) -> None:
    path = tmp_path / "special.jinja"
    path.write_text("the</s>{{ messages[0].content }}", encoding="utf-8")
    templated = answer("--chat-template", path, "--json", prompt="sea").json["usage"]["prompt_tokens"]
    raw = answer("--raw", "--json", prompt="the</s>sea").json["usage"]["prompt_tokens"]
    assert raw > templated


@pytest.mark.parametrize("mode", MODES)
def test_a_prompt_has_exactly_one_bos_in_every_mode(mode: str, answer: Run, files: Path, tmp_path: Path) -> None:
    path = tmp_path / "bos.jinja"
    path.write_text("{{ bos_token }}{{ messages[0].content }}", encoding="utf-8")
    once = answer(*MODES[mode], "--raw", "--json").json
    templated = answer(*MODES[mode], "--chat-template", path, "--json").json
    assert templated["usage"] == once["usage"]
    assert templated["text"] == once["text"]


def test_an_empty_prompt_is_the_bos_alone(answer: Run) -> None:
    result = answer("--raw", "--json", prompt="").json
    assert result["usage"] == {"prompt_tokens": 1, "completion_tokens": 12, "total_tokens": 13}


def test_an_empty_prompt_to_a_model_that_adds_no_bos_is_its_bos_all_the_same(answer: Run, tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", LLAMA, vocab=replace(vocabulary(320), add_bos=False))
    with_bos = answer("--raw", "--json", prompt="").json
    without = answer("--raw", "--json", "--verifier", path, prompt="").json
    assert (without["text"], without["usage"]) == (with_bos["text"], with_bos["usage"])


#
# complete: the options
#


def test_every_option_has_a_test_here() -> None:
    """A new option of `complete` needs a test; then add it to this list."""
    (commands,) = [a for a in cli.build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    options = {option for action in commands.choices["complete"]._actions for option in action.option_strings}
    assert options == {
        *("-h", "--help", "--prompt", "--prompt-file", "--chat-template", "--raw", "--json", "--verifier", "--draft"),
        *("--drafter", "--mode", "--mask", "--thresholds", "--draft-tokens", "--n-ctx", "--threads", "--temperature"),
        *("--seed", "--max-tokens", "--max-deviation", "--top-k", "--top-p", "--min-p", "--typical-p"),
        *("--repeat-penalty", "--frequency-penalty", "--presence-penalty", "--mirostat", "--grammar-file"),
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

    monkeypatch.setattr(tiers, "Context", Spy)
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
    assert result.err == "warning: n_ctx is 1024, but llama.gguf was trained for 512 tokens\n"


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
    original = drafters.ModelDrafter.propose

    def fail_later(self: drafters.ModelDrafter, text: list[int], limit: int, *more: Any) -> drafters.Draft:
        calls.append(limit)
        if len(calls) > 1:
            raise RuntimeError("out of ideas")
        return original(self, text, limit, *more)

    monkeypatch.setattr(drafters.ModelDrafter, "propose", fail_later)
    result = answer("--draft", files / "llama.gguf", "--json")
    assert result.status == 0
    assert result.err == "warning: the drafter failed (out of ideas); going on without drafts\n"
    assert json.loads(result.out)["text"] == answer("--json").json["text"]
    assert len(calls) == 2


#
# complete: what is refused
#

DRAFTS = ("--drafter", "lookup", "--mode", "exact")
REFUSED = {
    "missing file": (("--verifier", "{}/absent.gguf"), "absent.gguf does not exist; check the path"),
    "folder": (("--verifier", "{}"), "is a folder, not a GGUF file"),
    "text file": (("--verifier", "{}/text.gguf"), "this is not a GGUF file: it begins with b'This'"),
    "empty file": (("--verifier", "{}/empty.gguf"), "this is not a GGUF file: it is empty"),
    "truncated": (("--verifier", "{}/truncated.gguf"), "model is corrupted or incomplete"),
    "vocabulary": (("--verifier", "{}/vocabulary.gguf"), "it holds no weights, only a vocabulary"),
    "architecture": (("--verifier", "{}/nonesuch.gguf"), "unknown model architecture: 'nonesuch'"),
    "unknown name": (("--verifier", "smolm2-135m"), "no model is called 'smolm2-135m'; did you mean smollm2-135m?"),
    "hub form": (("--verifier", "hf:what"), "'hf:what' is not a hub file: write hf:OWNER/REPO/FILE.gguf"),
    "missing draft": (("--draft", "{}/absent.gguf"), "absent.gguf does not exist"),
    "truncated draft": (("--draft", "{}/truncated.gguf"), "truncated.gguf: llama.cpp cannot load this file"),
    "other tokenizer": (("--draft", "{}/other.gguf"), "token 300 is 'xyz' in the one and 'nd' in the other"),
    "recurrent draft": (("--draft", "{}/mamba.gguf"), "mamba.gguf: this model cannot draft"),
    "mask range": ((*DRAFTS, "--mask", "4-6"), "mask item '4-6' names layer 6; the model's layers are 0 to 5"),
    "mask form": ((*DRAFTS, "--mask", "2,x"), "mask item 'x' in '2,x' is none of"),
    "mask order": ((*DRAFTS, "--mask", "3-2"), "mask item '3-2' ends before it begins; write 2-3"),
    "mask all": ((*DRAFTS, "--mask", "a0-5"), "the mask skips the attention of every layer; keep at least one"),
    "mask none": ((*DRAFTS, "--mask", "none"), "mode exact needs a mask with at least one skipped sublayer"),
    "thresholds form": ((*DRAFTS, "--mask", "2", "--thresholds", "0.5"), "thresholds '0.5' are not of the form"),
    "thresholds rule": ((*DRAFTS, "--mask", "2", "--thresholds", "best:0,0"), "'best:0,0' are not of the form"),
    "thresholds range": (
        (*DRAFTS, "--mask", "2", "--thresholds", "ratio:0.5,1.5"),
        "ratio threshold rewrite is 1.5; it is a probability, from 0 to 1",
    ),
    "thresholds nan": ((*DRAFTS, "--mask", "2", "--thresholds", "nan,0"), "joint threshold accept is nan"),
    "no drafter": (("--mode", "sd"), "mode 'sd' needs a drafter"),
    "no draft": (("--drafter", "model"), "drafter 'model' needs a draft model (draft)"),
    "two drafters": (("--drafter", "lookup", "--draft", "x.gguf"), "'lookup' does not use the draft model 'x.gguf'"),
    "draft for none": (("--drafter", "none", "--draft", "x.gguf"), "'none' does not use the draft model 'x.gguf'"),
    "plain drafter": (("--mode", "plain", "--drafter", "lookup"), "mode 'plain' does not draft"),
    "no mask": (DRAFTS, "mode 'exact' needs a mask (mask), e.g. 12-17"),
    "mask for sd": (("--drafter", "lookup", "--mask", "2"), "mask is for the modes exact and tiered"),
    "thresholds for plain": (("--thresholds", "0,0"), "thresholds is for the modes exact and tiered"),
    "deviation": ((*MODES["tiered"], "--max-deviation", "1.5"), "max_deviation is 1.5; it is a share, from 0 to 1"),
    "deviation of sd": (("--drafter", "lookup", "--max-deviation", "0.1"), "max_deviation is for the mode tiered"),
    "top-p": (("--temperature", "1", "--top-p", "1.5"), "top_p is 1.5; it must be a number from 0 to 1"),
    "repeat penalty": (("--repeat-penalty", "0"), "repeat_penalty is 0.0; it must be above 0"),
    "grammar": (("--grammar-file", "{}/text.gguf"), "the grammar does not parse"),
    "grammar absent": (("--grammar-file", "{}/absent.gbnf"), "absent.gbnf cannot be read"),
    "temperature": (("--temperature", "-0.5"), "temperature is -0.5; it must be"),
    "temperature nan": (("--temperature", "nan"), "temperature is nan"),
    "temperature inf": (("--temperature", "inf"), "temperature is inf"),
    "seed": (("--temperature", "1", "--seed", "-1"), "seed is -1; it must be 0 or larger"),
    "draft tokens": (("--drafter", "lookup", "--draft-tokens", "0"), "draft_tokens is 0; it must be at least 1"),
    "context": (("--n-ctx", "1"), "n_ctx is 1; a context needs at least 2 positions"),
    "negative context": (("--n-ctx", "-4"), "n_ctx is -4; a context needs at least 2 positions"),
    "threads": (("--threads", "0"), "threads is 0; it must be from 1 to 512"),
    "long prompt": (("--prompt", "the sea" * 100, "--n-ctx", "64"), "tokens; the context holds 64 (n_ctx)"),
    "template absent": (("--chat-template", "{}/absent.jinja"), "absent.jinja cannot be read"),
    "template folder": (("--chat-template", "{}"), "cannot be read"),
    "template encoding": (("--chat-template", "{}/latin1.txt"), "latin1.txt is not UTF-8 text"),
    "template syntax": (("--chat-template", "{}/unparsable.jinja"), "the chat template cannot be parsed: unexpected"),
    "template refuses": (
        ("--chat-template", "{}/refuses.jinja"),
        "the chat template cannot render this conversation: no system role",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_one_line_of_its_own_on_standard_error(case: str, answer: Run, files: Path) -> None:
    options, message = REFUSED[case]
    result = answer(*(option.replace("{}", str(files)) for option in options))
    assert_refused(result, message)


def assert_refused(result: Result, message: str) -> None:
    assert result.status == 1
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.index("\n") == len(result.err) - 1
    assert message in result.err
    assert "Error" not in result.err  # no exception's name


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{}/absent.txt", "absent.txt cannot be read: No such file or directory"),
        ("{}", "cannot be read: Is a directory"),
        ("{}/latin1.txt", "latin1.txt is not UTF-8 text"),
        ("-", "the prompt on standard input is not UTF-8 text"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_refused_before_a_model_is_loaded(
    source: str, message: str, run: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"M\xfcll")))
    result = run("complete", "--verifier", "absent.gguf", "--prompt-file", source.replace("{}", str(files)))
    assert_refused(result, message)


def test_a_prompt_of_exactly_the_contexts_length_fits_and_one_token_more_does_not(answer: Run, files: Path) -> None:
    _, _, n = greedy(files / "llama.gguf", PROMPT, 1)
    result = answer("--n-ctx", n, "--json").json
    assert (result["text"], result["finish_reason"], result["usage"]["total_tokens"]) == ("", "length", n)
    assert_refused(answer("--n-ctx", n - 1), f"the prompt has {n} tokens; the context holds {n - 1} (n_ctx)")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("models",),
        ("models", "pull"),
        ("complete", "--prompt", "x"),
        ("complete", "--verifier", "x"),
        ("complete", "--verifier", "x", "--prompt", "x", "--prompt-file", "y"),
        ("complete", "--verifier", "x", "--prompt", "x", "--raw", "--chat-template", "y"),
        ("complete", "--verifier", "x", "--prompt", "x", "--mode", "fast"),
        ("complete", "--verifier", "x", "--prompt", "x", "--drafter", "luck"),
        ("complete", "--verifier", "x", "--prompt", "x", "--max-tokens", "many"),
        ("complete", "--verifier", "x", "--prompt", "x", "--unknown"),
        ("doctor", "--verifier", "x"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(arguments))
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: via-sd-local")
    assert "error: " in err.splitlines()[-1]


def test_a_context_of_0_is_refused(answer: Run) -> None:
    assert_refused(answer("--n-ctx", 0), "n_ctx is 0")


def test_empty_thresholds_are_refused(answer: Run) -> None:
    assert_refused(answer(*MODES["exact"], "--thresholds", ""), "thresholds '' are not of the form")


def test_an_empty_template_is_not_taken_for_the_models_own(answer: Run) -> None:
    result = answer("--chat-template", os.devnull, "--json", verifier="template.gguf")
    assert result.status == 1 or json.loads(result.out)["usage"]["prompt_tokens"] == 1


@pytest.mark.parametrize("template", ["{{ 1 // 0 }}", "{{ range(10 ** 10) | list }}", "{{ 'a'.encode('nix') }}"])
def test_a_template_that_fails_in_any_way_is_one_line(template: str, answer: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    path.write_text(template, encoding="utf-8")
    assert_refused(answer("--chat-template", path), "the chat template cannot render this conversation")


def test_more_threads_than_llama_cpp_can_have_are_refused(run: Run, files: Path, monkeypatch: Any) -> None:
    def stop(*_args: object, **_options: object) -> None:
        raise AssertionError("reached llama.cpp")

    monkeypatch.setattr(tiers.Tracked, "_probe_rewind", stop)
    assert_refused(run("complete", "--verifier", files / "llama.gguf", "--prompt", "x", "--threads", 10**6), "threads")


#
# the process
#


@pytest.mark.parametrize("case", ["text file", "truncated", "architecture", "other tokenizer", "mask all"])
def test_a_refusal_in_a_process_of_its_own_is_as_short(case: str, files: Path) -> None:
    """No abort, and nothing that llama.cpp itself prints."""
    options, message = REFUSED[case]
    common = ("--verifier", files / "llama.gguf", "--prompt", "x", "--threads", 1)
    assert_refused(spawn("complete", *common, *(option.replace("{}", str(files)) for option in options)), message)


def test_an_answer_in_a_process_of_its_own_is_the_answer_alone(files: Path) -> None:
    options = ("--verifier", files / "llama.gguf", "--threads", 1, "--max-tokens", 12, "--prompt-file", "-", "--json")
    result = spawn("complete", *options, *MODES["exact"], input=PROMPT).json
    assert result["text"] == greedy(files / "llama.gguf", PROMPT, 12)[1]


def test_a_recurrent_verifiers_warning_is_the_only_one_in_a_process_of_its_own(files: Path) -> None:
    options = ("--verifier", files / "mamba.gguf", "--draft", files / "llama.gguf", "--mode", "sd", "--threads", 1)
    result = spawn("complete", *options, "--prompt", "x", "--max-tokens", 3)
    assert result.status == 0
    assert result.err == "warning: mamba.gguf cannot be rolled back (recurrent or hybrid): decoding without drafts\n"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_reader_that_leaves_early_gets_no_traceback(options: tuple[str, ...], files: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `| head` does once it has enough; here before the first byte, so that the test has no race
    arguments = ("complete", "--verifier", files / "llama.gguf", "--prompt", "x", "--threads", 1, "--max-tokens", 3)
    try:
        command = [str(part) for part in (COMMAND, *arguments, *options)]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    "redirection",
    [
        pytest.param(">/dev/full", marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")),
        ">&-",
        "--prompt-file - <&-",
    ],
)
def test_a_full_disk_or_a_closed_stream_gives_one_line(redirection: str, files: Path) -> None:
    prompt = "" if "--prompt" in redirection else "--prompt x"
    command = f"'{COMMAND}' complete --verifier llama.gguf --max-tokens 3 --threads 1 {prompt} {redirection}"
    done = subprocess.run(command, shell=True, cwd=files, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 1


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_terminal_without_unicode_shows_what_it_can(options: tuple[str, ...], files: Path) -> None:
    arguments = ("--verifier", files / "llama.gguf", "--prompt", PROMPT, "--threads", 1, "--max-tokens", 30)
    result = spawn("complete", *arguments, *options, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (result.status, result.err) == (0, "")


def test_ctrl_c_exits_with_130(answer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_args: argparse.Namespace) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(complete, "read_prompt", interrupt)
    assert answer() == Result(130, "", "\n")


def test_a_warning_that_comes_again_and_again_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    def warn() -> int:
        for _ in range(3):
            warnings.warn("mind the gap", RuntimeWarning, stacklevel=1)
        return 0

    assert console.run(warn) == 0
    assert capsys.readouterr() == ("", "warning: mind the gap\n")


def test_an_error_of_ours_in_the_code_is_not_disguised(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One-line errors are for what a user can act on; a defect keeps its traceback."""

    def defect() -> int:
        raise AssertionError("a defect")

    with pytest.raises(AssertionError, match="a defect"):
        console.run(defect)


HELP = """
import sys
from via_sd_local import chat, cli
commands = [[], ["complete"], ["models"], ["models", "list"], ["models", "pull"], ["doctor"]]
for main, arguments in [*((cli.main, command) for command in commands), (chat.main, [])]:
    try:
        main([*arguments, "--help"])
    except SystemExit as end:
        assert end.code == 0, arguments
loaded = [name for name in ("llama_cpp", "via_sd_local.binding", "numpy", "huggingface_hub") if name in sys.modules]
print("loaded:", loaded, file=sys.stderr)
"""


def test_help_of_every_command_works_without_the_library() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == 7
    assert "llama_cpp" not in done.stderr
    assert "via_sd_local.binding" not in done.stderr
    for words in ("--thresholds RULE", "--max-tokens N", "--quiet", "--system TEXT"):
        assert words in done.stdout


def test_the_version_is_printed() -> None:
    result = spawn("--version")
    assert result.status == 0
    assert result.out.startswith("via-sd-local ")
    assert result.err == ""


#
# doctor
#

VERDICTS = (
    "works; used",
    "not announced",
    "announced, but the kernel refuses it; built without it",
    "announced, but it faults; built without it",
    "not an x86 processor",
    "not probed: not a native build",
    "not probed: the probe does not compile",
)


def test_doctor_reports_this_installation(run: Run) -> None:
    result = run("doctor", "--json")
    assert (result.status, result.err) == (0, "")
    report = json.loads(result.out)
    assert set(report) == {
        *("version", "python", "platform", "cpus", "packages", "problems"),
        *("build", "library", "patched", "cpu_features", "models"),
    }
    assert report["problems"] == []
    assert report["patched"] is True
    assert Path(report["library"]).is_file()
    assert report["build"]["amx"] in VERDICTS
    assert report["cpus"] == os.cpu_count()
    assert all(report["packages"].values())
    assert report["cpu_features"]
    assert not any(mark in feature for feature in report["cpu_features"] for mark in "|: ")


def test_the_known_amx_verdicts_are_those_of_the_build() -> None:
    text = (Path(__file__).parents[1] / "native" / "amx.cmake").read_text(encoding="utf-8")
    assert {line.split('"')[1] for line in text.splitlines() if "set(AMX_VERDICT" in line} == set(VERDICTS)


def test_doctor_says_the_same_for_people(run: Run) -> None:
    report = json.loads(run("doctor", "--json").out)
    result = run("doctor")
    assert (result.status, result.err) == (0, "")
    names = [line.split("  ")[0] for line in result.out.splitlines()]
    assert names[:7] == ["via_sd_local", "packages", "library", "llama.cpp", "layer masks", "backends", "CPU"]
    assert "AMX" in names
    for words in (report["version"], report["library"], report["build"]["amx"], report["build"]["llama_cpp_commit"]):
        assert words in result.out


def test_doctor_lists_the_models_that_are_here(
    run: Run, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path))
    assert json.loads(run("doctor", "--json").out)["models"] == []
    assert "none yet; `via-sd-local models pull smollm2-135m` fetches one" in run("doctor").out
    (tmp_path / "models").mkdir()
    own = tmp_path / "models" / "own.gguf"
    shutil.copy(files / "llama.gguf", own)
    assert json.loads(run("doctor", "--json").out)["models"] == [{"name": "own.gguf", "path": str(own)}]
    assert f"own.gguf: {own}" in run("doctor").out


def test_cpu_features_are_those_that_are_on() -> None:
    assert doctor.cpu_features("CPU : SSE3 = 1 | AVX = 0 | SVE_CNT = 4 | REPACK = 1 | ") == [
        *("SSE3", "SVE_CNT=4", "REPACK")
    ]


def test_doctor_without_the_library_names_the_problem_and_exits_with_1(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("via_sd_local.binding")
    monkeypatch.setitem(sys.modules, "via_sd_local.binding", None)
    result = run("doctor", "--json")
    report = json.loads(result.out)
    assert result.status == 1
    assert len(report["problems"]) == 1
    assert result.err == f"error: {report['problems'][0]}\n"
    assert not {"build", "library", "patched"} & set(report)
    assert run("doctor").out.splitlines()[-1].startswith("packages")


WITHOUT_LIBRARY = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
sys.path.insert(0, sys.argv[1])
from via_sd_local import cli
assert cli.__file__.startswith(sys.argv[1])
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    "arguments", [("doctor",), ("doctor", "--json"), ("complete", "--verifier", "smollm2-135m", "--prompt", "x")]
)
def test_a_checkout_that_is_not_built_says_how_to_build_it(arguments: tuple[str, ...], tmp_path: Path) -> None:
    package = Path(cli.__file__).parent
    shutil.copytree(package, tmp_path / "via_sd_local", ignore=shutil.ignore_patterns("lib", "_vendor", "__pycache__"))
    shutil.copytree(package.parent / "models", tmp_path / "models")
    command = [sys.executable, "-c", WITHOUT_LIBRARY, str(tmp_path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "has no built llama.cpp; run `make install`" in done.stderr
    if arguments[0] == "doctor":
        assert done.stdout
    else:
        assert done.stdout == ""


def test_a_library_without_the_patch_is_refused_with_the_remedy() -> None:
    with pytest.raises(ImportError, match=r"has no llama_no_such_function: it is not the patched .* `make install`"):
        binding._declare("llama_no_such_function", [], None)


#
# models
#


def test_models_list_names_the_catalogue_and_what_is_here(run: Run, smollm2_path: Path) -> None:
    result = run("models", "list", "--json")
    assert (result.status, result.err) == (0, "")
    rows = {row["name"]: row for row in json.loads(result.out)}
    assert {"smollm2-135m", "gemma-3-270m"} <= set(rows)
    assert all(set(row) == {"name", "description", "license", "size", "path"} for row in rows.values())
    assert rows["smollm2-135m"]["path"] == str(smollm2_path)
    assert rows["smollm2-135m"]["size"] == smollm2_path.stat().st_size
    text = run("models", "list").out
    assert text.count("\n") == len(rows)
    assert str(smollm2_path) in text


def test_models_list_tells_what_is_not_here(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path))
    assert {row["path"] for row in json.loads(run("models", "list", "--json").out)} == {None}
    lines = run("models", "list").out.splitlines()
    assert all("[not here; " in line for line in lines)
    assert any("fetch it with `models pull`" in line for line in lines)
    message = "is not on this machine"
    assert_refused(run("complete", "--verifier", "smollm2-135m", "--prompt", "x"), message)


@pytest.mark.parametrize("options", [(), ("--quiet",)])
def test_pulling_a_model_that_is_here_prints_its_path_last(
    options: tuple[str, ...], run: Run, smollm2_path: Path
) -> None:
    result = run("models", "pull", "smollm2-135m", *options)
    assert result.status == 0
    assert result.out.splitlines()[-1] == str(smollm2_path)


def test_pulling_as_json_prints_one_object(run: Run, smollm2_path: Path) -> None:
    result = run("models", "pull", "smollm2-135m", "--json")
    assert result.json == {"name": "smollm2-135m", "path": str(smollm2_path)}


def test_progress_is_shown_unless_quiet_or_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bool]] = []

    def pull(name: str, *, progress: bool, verify: bool) -> Path:
        seen.append((progress, verify))
        return Path(name)

    monkeypatch.setattr("via_sd_local.catalog.pull", pull)
    for options in ((), ("--quiet",), ("--json",), ("--verify",)):
        assert run("models", "pull", "x", *options).status == 0
    assert seen == [(True, False), (False, False), (False, False), (True, True)]


def test_an_unknown_name_suggests_the_close_one(run: Run) -> None:
    assert_refused(
        run("models", "pull", "smollm2-153m"), "no model is called 'smollm2-153m'; did you mean smollm2-135m?"
    )


#
# complete: sampling
#


def test_sampling_options_reach_the_sampler(answer: Run, tmp_path: Path) -> None:
    """Each one changes what a fixed seed gives, in a way of its own."""
    base = ("--temperature", "1.5", "--seed", "3", "--json")
    options = [(), ("--top-k", "2"), ("--top-p", "0.2"), ("--min-p", "0.5"), ("--typical-p", "0.3")]
    options += [
        ("--repeat-penalty", "3"),
        ("--frequency-penalty", "2"),
        ("--presence-penalty", "-9"),
        ("--mirostat", "2"),
    ]
    texts = [answer(*base, *more, max_tokens=40).json["text"] for more in options]
    assert len(set(texts)) == len(texts)
    assert texts[0] == answer(*base, max_tokens=40).json["text"]


@pytest.mark.parametrize("mode", MODES)
def test_a_grammar_file_is_followed(mode: str, answer: Run, tmp_path: Path) -> None:
    (tmp_path / "g.gbnf").write_text('root ::= "the" (" sea" | " sun")', encoding="utf-8")
    text = answer(*MODES[mode], "--grammar-file", tmp_path / "g.gbnf", "--json", max_tokens=30).json["text"]
    assert text.strip() in ("the sea", "the sun")


def test_a_budget_makes_tiered_stricter(answer: Run, files: Path) -> None:
    options = ("--draft", files / "llama.gguf", "--mode", "tiered", "--mask", "2-3", "--thresholds", "0,0", "--json")
    lax = answer(*options, max_tokens=200).json["stats"]
    strict = answer(*options, "--max-deviation", "0", max_tokens=200).json["stats"]
    assert lax["tightened"] == 0 < strict["tightened"]
    assert strict["regions"]["C"] > lax["regions"]["C"]
