"""The chat program without a terminal."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import conversations
import pytest
import tiny
from conversations import LLAMA, TEMPLATE, Talking, ask

from via_sd_local.chat import plain_turns
from via_sd_local.chat.__main__ import main

CUT = "note: the answer is cut short: it reached 6 tokens; --max-tokens sets another limit, and -1 none\n"
talking, tiny_path = conversations.talking, conversations.tiny_path


@pytest.fixture
def piped(
    tiny_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """`piped(b"question", "--seed", 1)`: status, standard output and error, in this process."""

    def call(data: bytes, *options: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        common = ("--verifier", tiny_path, "--threads", 1, "--max-tokens", 6)
        status = main([str(option) for option in (*common, *options)])
        return (status, *capsys.readouterr())

    return call


Piped = Callable[..., tuple[int, str, str]]


def test_piped_input_gives_one_answer(piped: Piped, talking: Talking) -> None:
    expected = ask(talking("be short", max_tokens=6), "the sea\nand then")
    assert piped(b"the sea\nand then\n", "--system", "be short") == (0, expected + "\n", CUT)
    assert expected != ask(talking(max_tokens=6), "the sea\nand then")


def test_a_command_in_piped_input_is_a_question(piped: Piped, talking: Talking) -> None:
    assert piped(b"/exit") == (0, ask(talking(max_tokens=6), "/exit") + "\n", CUT)


def test_piped_bytes_that_are_no_utf_8_do_not_end_the_chat(piped: Piped, talking: Talking) -> None:
    assert piped(b"M\xfcll") == (0, ask(talking(max_tokens=6), "M\ufffdll") + "\n", CUT)


@pytest.mark.parametrize("data", [b"", b" \n\n"])
def test_no_input_is_no_answer(data: bytes, piped: Piped) -> None:
    assert piped(data) == (0, "", "")


def test_piped_input_that_is_too_long_is_one_line(piped: Piped) -> None:
    status, out, err = piped(b"the sea " * 100, "--n-ctx", 128)
    assert (status, out) == (1, "")
    assert re.fullmatch(r"error: this message takes \d+ tokens, \d+ more than fit: [^\n]*\n", err)


def test_piped_input_that_the_template_refuses_is_one_line(piped: Piped) -> None:
    status, out, err = piped(b"forbidden")
    assert (status, out) == (1, "")
    assert err == "error: the chat template cannot render this conversation: refused: forbidden\n"


def test_a_model_without_a_template_is_talked_to_in_plain_turns_with_a_warning(
    piped: Piped, talking: Talking, tmp_path: Path
) -> None:
    bare = tiny.write(tmp_path / "bare.gguf", LLAMA)
    status, out, err = piped(b"the sea", "--verifier", bare)
    assert (status, bool(out)) == (0, True)
    assert err.startswith("warning: bare.gguf has no chat template; using plain User:/Assistant: turns")
    assert "--chat-template FILE" in err
    plain = tmp_path / "plain.jinja"
    plain.write_text(plain_turns.TEMPLATE, encoding="utf-8")
    assert piped(b"the sea", "--verifier", bare, "--chat-template", plain) == (0, out, CUT)
    template = tmp_path / "t.jinja"
    template.write_text(TEMPLATE, encoding="utf-8")
    given = piped(b"the sea", "--verifier", bare, "--chat-template", template)
    assert given == (0, ask(talking(max_tokens=6), "the sea") + "\n", CUT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--verifier", "absent.gguf"), "absent.gguf does not exist"),
        (("--verifier", "nonesuch"), "no model is called 'nonesuch'"),
        (("--mode", "exact"), "--mode exact needs a drafter"),
        (("--temperature", "-1"), "temperature is -1.0"),
        (("--chat-template", "absent.jinja"), "the chat template file absent.jinja cannot be read"),
    ],
)
def test_the_chat_refuses_in_one_line_what_cannot_be_done(options: tuple[str, str], message: str, piped: Piped) -> None:
    status, out, err = piped(b"the sea", *options)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err


def test_dev_null_ends_the_chat_at_once_and_without_a_word(tiny_path: Path) -> None:
    command = [sys.executable, "-m", "via_sd_local.chat", "--verifier", str(tiny_path), "--threads", "1"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_drafter_that_was_never_used_is_mentioned(piped: Piped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("via_sd_local.engine.engine.Engine.why_no_drafts", property(lambda _engine: "it was asleep"))
    assert piped(b"the sea")[2] == CUT + "warning: no drafts were made: it was asleep\n"


def test_sampling_is_as_the_file_recommends_and_temperature_0_is_greedy(
    piped: Piped, talking: Talking, tmp_path: Path
) -> None:
    overrides = {"tokenizer.chat_template": TEMPLATE, "general.sampling.temp": 5.0}
    warm = tiny.write(tmp_path / "warm.gguf", LLAMA, overrides=overrides)
    greedy = ask(talking(max_tokens=6), "the sea") + "\n"
    answers = {piped(b"the sea", "--verifier", warm, "--seed", seed)[1] for seed in range(3)}
    assert len(answers) == 3
    assert piped(b"the sea", "--verifier", warm, "--temperature", 0)[1] == greedy
    assert piped(b"the sea")[1] == greedy  # nothing is recommended for this model
