"""`via-sd-local complete`: the answer, as text and as JSON, the prompt that it answers, and sampling."""

from __future__ import annotations

import io
import json
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import commands
import pytest
import tiny
from commands import LLAMA, MODES, PROMPT, Run, greedy
from tiny_vocab import vocabulary

from via_sd_local.runtime.model import Model

answer, files, run = commands.answer, commands.files, commands.run


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
        assert (streamed.status, streamed.out) == (0, text + "\n")


def test_an_answer_that_is_cut_short_is_noted_on_standard_error_with_the_option_that_changes_it(
    answer: Run, files: Path
) -> None:
    by_limit = answer(max_tokens=5)
    assert (by_limit.status, by_limit.err.count("\n")) == (0, 1)
    assert by_limit.err.startswith("note: the answer is cut short: it reached 5 tokens; --max-tokens ")
    n_ctx = greedy(files / "llama.gguf", PROMPT, 1)[2] + 4
    by_context = answer("--n-ctx", n_ctx, max_tokens=-1)
    assert (by_context.status, by_context.err.count("\n")) == (0, 1)
    assert by_context.err.startswith(f"note: the answer is cut short: the context of {n_ctx} tokens is full; --n-ctx ")
    ended = answer(verifier="mamba.gguf", prompt="the sea", max_tokens=50)  # which ends by itself
    assert (ended.status, ended.err) == (0, "")
    assert answer(max_tokens=0).err == ""


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
        *("tokens_per_second", "overhead_seconds", "blocks", "draft_prefill_tokens"),
        *("audits", "audited", "deviations", "deviation", "overshoot", "tightened", "max_in_flight"),
        *("unaudited", "assumed_deviations", "drafting_off", "lenient", "lenient_deviation", "slim_deviation"),
        *("draft_lengths", "accepted_lengths", "acceptance_by_position", "drafters", "drafter_failed", "pace"),
        "settled",
    }
    assert set(stats["regions"]) == {"A", "B", "C", "bonus"}
    assert set(stats["pace"]) == {"off", "probes", "slim_first", "full_first"}
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
    longer = ("--draft-tokens", 7) if mode != "plain" else ()
    result = answer(*MODES[mode], *longer, "--json", max_tokens=n).json
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
        run(*common, prompt).json,
    ]
    for arguments in ((), ("-",)):  # which lose the line break that echo adds
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(prompt.encode() + b"\n"), encoding="ascii"))
        results.append(run(*common, *arguments).json)
    assert [result["text"] for result in results[1:]] == [results[0]["text"]] * 5
    assert [result["usage"] for result in results[1:]] == [results[0]["usage"]] * 5
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


@pytest.mark.parametrize("mode", MODES)
def test_a_json_schema_file_is_followed(mode: str, answer: Run, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"salty": {"type": "boolean"}}, "required": ["salty"]}
    (tmp_path / "s.json").write_text(json.dumps(schema), encoding="utf-8")
    text = answer(*MODES[mode], "--json-schema-file", tmp_path / "s.json", "--json", max_tokens=60).json["text"]
    assert json.loads(text)["salty"] in (True, False)


def test_a_budget_makes_tiered_stricter(answer: Run, files: Path) -> None:
    options = ("--draft", files / "llama.gguf", "--mode", "tiered", "--mask", "2-3", "--thresholds", "0,0", "--json")
    lax = answer(*options, max_tokens=200).json["stats"]
    strict = answer(*options, "--max-deviation", "0.01", max_tokens=200).json["stats"]
    result = answer(*options, "--max-deviation", "0", max_tokens=200)
    assert result.err == "warning: the slim tier was never asked: its deviations would overdraw the budget\n"
    nothing = json.loads(result.out)["stats"]
    assert (nothing["passes"]["slim"]["calls"], nothing["deviation"]) == (0, 0)
    assert lax["tightened"] == 0 < strict["tightened"]
    assert strict["passes"]["slim"]["calls"] < lax["passes"]["slim"]["calls"]


def test_a_draft_model_that_was_never_used_is_mentioned(
    answer: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no drafts" not in answer("--draft", files / "llama.gguf", max_tokens=20).err
    monkeypatch.setattr("via_sd_local.engine.engine.Engine.why_no_drafts", property(lambda _engine: "it was asleep"))
    assert answer("--draft", files / "llama.gguf").err.splitlines()[0] == "warning: no drafts were made: it was asleep"
