"""What `via-sd-local complete` refuses: one line on standard error, and the exit status."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import commands
import pytest
from commands import MODES, PROMPT, Run, assert_refused, greedy, spawn

from via_sd_local import cli
from via_sd_local.__main__ import main as program
from via_sd_local.tiers.cache import TokenCache

answer, files, run = commands.answer, commands.files, commands.run

DRAFTS = ("--drafter", "lookup", "--mode", "exact")
REFUSED = {
    "missing file": (("--verifier", "{}/absent.gguf"), "absent.gguf does not exist; check the path"),
    "folder": (("--verifier", "{}"), " GGUF files; name one of "),
    "text file": (("--verifier", "{}/text.gguf"), "this is not a GGUF file: it begins with b'This'"),
    "empty file": (("--verifier", "{}/empty.gguf"), "this is not a GGUF file: it is empty"),
    "truncated": (("--verifier", "{}/truncated.gguf"), "model is corrupted or incomplete"),
    "vocabulary": (("--verifier", "{}/vocabulary.gguf"), "it holds no weights, only a vocabulary"),
    "architecture": (("--verifier", "{}/nonesuch.gguf"), "unknown model architecture: 'nonesuch'"),
    "unknown name": (("--verifier", "smolm2-135m"), "no model is called 'smolm2-135m'; did you mean smollm2-135m?"),
    "hub form": (("--verifier", "hf:what"), "'hf:what' is not a hub file: write hf:OWNER/REPO, hf:OWNER/REPO:QUANT"),
    "missing draft": (("--draft", "{}/absent.gguf"), "absent.gguf does not exist"),
    "truncated draft": (("--draft", "{}/truncated.gguf"), "truncated.gguf: llama.cpp cannot load this file"),
    "other tokenizer": (("--draft", "{}/other.gguf"), "token 300 is 'xyz' in the draft and 'nd' in the verifier"),
    "recurrent draft": (("--draft", "{}/mamba.gguf"), "mamba.gguf: this model cannot draft"),
    "mask range": ((*DRAFTS, "--mask", "4-6"), "--mask item '4-6' names layer 6; the model's layers are 0 to 5"),
    "draft mask range": (("--drafter", "self", "--draft-mask", "6"), "error: --draft-mask item '6' names layer 6;"),
    "draft placement": (("--draft", "{}/llama.gguf", "--draft-main-gpu", "3"), "error: --draft-main-gpu is 3, counted"),
    "draft devices": (("--draft", "{}/llama.gguf", "--draft-gpu-layers", "-5"), "error: --draft-gpu-layers is -5; "),
    "flash attention": (
        ("--cache-type-v", "q4_0", "--flash-attn", "off"),
        "--cache-type-v is 'q4_0' with --flash",
    ),
    "mask form": ((*DRAFTS, "--mask", "2,x"), "mask item 'x' in '2,x' is none of"),
    "mask order": ((*DRAFTS, "--mask", "3-2"), "mask item '3-2' ends before it begins; write 2-3"),
    "mask all": ((*DRAFTS, "--mask", "a0-5"), "the mask skips the attention of every layer; keep at least one"),
    "mask none": ((*DRAFTS, "--mask", "none"), "mode exact needs a mask with at least one skipped sublayer"),
    "thresholds form": ((*DRAFTS, "--mask", "2", "--thresholds", "0.5"), "thresholds '0.5' are not of the form"),
    "thresholds rule": ((*DRAFTS, "--mask", "2", "--thresholds", "best:0,0"), "'best:0,0' are not of the form"),
    "thresholds range": (
        (*DRAFTS, "--mask", "2", "--thresholds", "ratio:0.5,1.5"),
        "ratio threshold rewrite is 1.5; it must be a probability from 0 to 1",
    ),
    "thresholds nan": ((*DRAFTS, "--mask", "2", "--thresholds", "nan,0"), "joint threshold accept is nan"),
    "no drafter": (
        ("--mode", "sd"),
        "error: --mode sd needs a drafter: a draft model (--draft), --drafter lookup, which needs no model, or ",
    ),
    "no draft": (("--drafter", "model"), "error: --drafter model needs a draft model (--draft)"),
    "two drafters": (("--drafter", "lookup", "--draft", "x.gguf"), "lookup does not use the draft model 'x.gguf'"),
    "draft for none": (("--drafter", "none", "--draft", "x.gguf"), "none does not use the draft model 'x.gguf'"),
    "plain drafter": (("--mode", "plain", "--drafter", "lookup"), "--mode plain does not draft"),
    "no mask": (DRAFTS, "--mode exact needs a mask, and there is no profile of this verifier: give one"),
    "mask for sd": (("--drafter", "lookup", "--mask", "2"), "error: --mask is for the modes exact, tiered and viasd"),
    "thresholds for plain": (("--thresholds", "0,0"), "error: --thresholds is for the modes exact, tiered and viasd"),
    "deviation": (
        (*MODES["tiered"], "--max-deviation", "1.5"),
        "error: --max-deviation is 1.5; it must be",
    ),
    "no mask or profile": (
        (*DRAFTS, "--profile", "none"),
        "--mode exact needs a mask (--mask), e.g. 12-17, or a routing profile (--profile)",
    ),
    "absent profile": ((*DRAFTS, "--profile", "nonesuch"), "there is no profile 'nonesuch'; `via-sd-local profiles"),
    "deviation of sd": (
        ("--drafter", "lookup", "--mode", "sd", "--max-deviation", "0.1"),
        "error: --max-deviation is for the modes auto, lenient, tiered and viasd; --mode sd does not deviate",
    ),
    "top-p": (("--temperature", "1", "--top-p", "1.5"), "error: --top-p is 1.5; it must be a number from 0 to 1"),
    "repeat penalty": (("--repeat-penalty", "0"), "error: --repeat-penalty is 0.0; it must be above 0"),
    "grammar": (
        ("--grammar-file", "{}/text.gguf"),
        "with a rule named root: expecting ::= at is not a GGUF",
    ),
    "grammar absent": (("--grammar-file", "{}/absent.gbnf"), "absent.gbnf cannot be read"),
    "schema": (("--json-schema-file", "{}/latin1.txt"), "latin1.txt is not UTF-8 text"),
    "schema and grammar": (
        ("--json-schema-file", "{}/text.gguf", "--grammar-file", "{}/text.gguf"),
        "give one of the two",
    ),
    "schema form": (("--json-schema-file", "{}/text.gguf"), "error: --json-schema-file is not JSON"),
    "temperature": (("--temperature", "-0.5"), "error: --temperature is -0.5; it must be"),
    "temperature nan": (("--temperature", "nan"), "temperature is nan"),
    "temperature inf": (("--temperature", "inf"), "temperature is inf"),
    "seed": (("--temperature", "1", "--seed", "-1"), "seed is -1; it must be 0 or larger"),
    "draft tokens without a drafter": (("--draft-tokens", "3"), "--draft-tokens is given, but nothing drafts"),
    "draft tokens": (
        ("--drafter", "lookup", "--draft-tokens", "0"),
        "error: --draft-tokens is 0; it must be",
    ),
    "context": (("--n-ctx", "1"), "error: --n-ctx is 1; a context needs at least 2 positions"),
    "negative context": (("--n-ctx", "-4"), "error: --n-ctx is -4; a context needs at least 2 positions"),
    "threads": (("--threads", "0"), "error: --threads is 0; it must be from 1 to 512"),
    "long prompt": (("--prompt", "the sea" * 100, "--n-ctx", "64"), "tokens; the context holds 64 (--n-ctx)"),
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


def test_a_prompt_that_leaves_no_room_for_an_answer_is_refused(answer: Run, files: Path) -> None:
    _, _, n = greedy(files / "llama.gguf", PROMPT, 1)
    for n_ctx in (n, n - 1):
        message = f"the prompt has {n} tokens; the context holds {n_ctx} (--n-ctx), at least one of them for the answer"
        assert_refused(answer("--n-ctx", n_ctx), message)
    last = answer("--n-ctx", n + 1, "--json").json
    assert (last["finish_reason"], last["usage"]["total_tokens"]) == ("length", n + 1)
    none = answer("--n-ctx", n, "--max-tokens", 0, "--json").json
    assert (none["text"], none["usage"]["total_tokens"]) == ("", n)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("models",),
        ("models", "pull"),
        ("complete", "x", "--prompt", "x"),
        ("complete", "x", "y"),
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
    assert err.startswith("error: ")
    assert err.index("\n") == len(err) - 1
    assert "--help` lists the options)" in err


def test_wrong_usage_names_what_was_typed_and_the_closest_option(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (("complete", "x", "--temprature", "1"), "there is no option --temprature; did you mean --temperature?"),
        (("complete", "x", "--max-tokens", "many"), "--max-tokens: invalid token_count value: 'many'"),
        (("complete", "x", "y"), "unexpected argument y"),
        (("doctor", "x"), "unexpected argument x"),
        (("chat", "--mode", "fast"), "--mode: invalid choice: 'fast'"),
    ):
        with pytest.raises(SystemExit):
            program(list(arguments))
        assert capsys.readouterr().err.startswith(f"error: {message}")


def test_a_context_of_0_is_refused(answer: Run) -> None:
    assert_refused(answer("--n-ctx", 0), "--n-ctx is 0")


def test_empty_thresholds_are_refused(answer: Run) -> None:
    assert_refused(answer(*MODES["exact"], "--thresholds", ""), "thresholds '' are not of the form")


@pytest.mark.parametrize("text", ["", "This file is no template.\n"])
def test_a_template_without_the_messages_is_refused_and_not_taken_for_the_models_own(
    text: str, answer: Run, tmp_path: Path
) -> None:
    path = tmp_path / "t.jinja"
    path.write_text(text, encoding="utf-8")
    result = answer("--chat-template", path, verifier="template.gguf")
    assert_refused(result, "the chat template leaves out the messages")


@pytest.mark.parametrize("template", ["{{ 1 // 0 }}", "{{ range(10 ** 10) | list }}", "{{ 'a'.encode('nix') }}"])
def test_a_template_that_fails_in_any_way_is_one_line(template: str, answer: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    path.write_text(template, encoding="utf-8")
    assert_refused(answer("--chat-template", path), "the chat template cannot render this conversation")


def test_more_threads_than_llama_cpp_can_have_are_refused(run: Run, files: Path, monkeypatch: Any) -> None:
    def stop(*_args: object, **_options: object) -> None:
        raise AssertionError("reached llama.cpp")

    monkeypatch.setattr(TokenCache, "_probe_rewind", stop)
    assert_refused(run("complete", "--verifier", files / "llama.gguf", "--prompt", "x", "--threads", 10**6), "threads")


@pytest.mark.parametrize("case", ["text file", "truncated", "architecture", "other tokenizer", "mask all", "grammar"])
def test_a_refusal_in_a_process_of_its_own_is_as_short(case: str, files: Path) -> None:
    """No abort, and nothing that llama.cpp itself prints."""
    options, message = REFUSED[case]
    common = ("--verifier", files / "llama.gguf", "--prompt", "x", "--threads", 1)
    assert_refused(spawn("complete", *common, *(option.replace("{}", str(files)) for option in options)), message)
