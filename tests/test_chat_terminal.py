"""The chat program in a terminal."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import conversations
import pytest

pexpect = pytest.importorskip("pexpect")

tiny_path = conversations.tiny_path


@pytest.fixture
def terminal(tiny_path: Path) -> Iterator[Callable[..., Any]]:
    """`terminal("--system", "…")` starts the chat in a terminal and waits for its prompt."""
    children: list[Any] = []

    def start(*options: object, verifier: Path = tiny_path) -> Any:
        arguments = ["-m", "via_sd_local.chat", "--verifier", verifier, "--threads", 1, *options]
        child = pexpect.spawn(
            sys.executable,
            [str(argument) for argument in arguments],
            encoding="utf-8",
            codec_errors="replace",
            timeout=30,
            dimensions=(24, 250),
            env={**os.environ, "TERM": "xterm"},
        )
        children.append(child)
        child.expect_exact("; /help for commands\r\n")
        prompt(child)
        return child

    yield start
    for child in children:
        child.close(force=True)


def prompt(child: Any) -> str:
    """Wait for the next prompt; returns what came before it."""
    child.expect(r"(?:^|\n|\x1b\[\?2004h)> $")
    return str(child.before)


def status_of(child: Any) -> int:
    child.expect(pexpect.EOF)
    child.close()
    return int(child.exitstatus)


Terminal = Callable[..., Any]


@pytest.mark.parametrize("leave", ["/exit", " /exit ", "ctrl-d"])
def test_exit_and_ctrl_d_leave_with_status_0(leave: str, terminal: Terminal) -> None:
    child = terminal()
    if leave == "ctrl-d":
        child.sendeof()
    else:
        child.sendline(leave)
    assert status_of(child) == 0
    assert "Traceback" not in child.before


def test_ctrl_c_at_the_prompt_leaves_with_status_130(terminal: Terminal) -> None:
    child = terminal()
    child.sendintr()
    assert status_of(child) == 130
    assert "Traceback" not in child.before


def test_the_commands_answer_and_an_unknown_one_points_to_help(terminal: Terminal) -> None:
    child = terminal("--max-tokens", 3)
    child.sendline("/help")
    text = prompt(child)
    assert all(words in text for words in ("/clear ", "/stats ", "/exit ", "Ctrl-D", "Ctrl-C"))
    child.sendline("/nonsense now")
    assert "/nonsense is no command; /help lists them" in prompt(child)
    child.sendline("")
    assert "tokens" not in prompt(child)  # it was no question
    child.sendline("/clear")
    assert "(the conversation is forgotten)" in prompt(child)
    child.sendline("/exit")
    assert status_of(child) == 0


def test_stats_and_clear_are_about_the_conversation(terminal: Terminal) -> None:
    child = terminal("--max-tokens", 3)

    def stats() -> dict[str, str]:
        child.sendline("/stats")
        return dict(re.findall(r"^(\w+): (.*?)\r$", prompt(child), re.MULTILINE))

    child.sendline("the sea")
    assert re.search(r"\[3 tokens, [\d.]+ tokens/s, context \d+/512\]", prompt(child))
    first = stats()
    assert (first["mode"], first["completion_tokens"], first["reused_tokens"]) == ("plain", "3", "0")
    child.sendline("the sea")
    prompt(child)
    second = stats()
    assert int(second["prompt_tokens"]) > int(first["prompt_tokens"])
    assert int(second["reused_tokens"]) >= int(first["prompt_tokens"])
    child.sendline("/clear")
    prompt(child)
    child.sendline("the sea")
    prompt(child)
    assert stats()["prompt_tokens"] == first["prompt_tokens"]


def test_a_pasted_message_of_several_lines_is_one_message(terminal: Terminal) -> None:
    child = terminal("--max-tokens", 3)
    child.send("\x1b[200~forbidden one\nand two\x1b[201~")
    time.sleep(0.2)  # a paste ends before its Enter
    child.send("\r")
    child.expect_exact("refused: forbidden one / and two")


def test_a_message_that_is_too_long_does_not_end_the_chat(terminal: Terminal) -> None:
    child = terminal("--max-tokens", 3, "--n-ctx", 128)
    child.sendline("the sea " * 60)
    assert re.search(r"error: this message takes \d+ tokens, \d+ more than fit", prompt(child))
    child.sendline("the sea")
    assert re.search(r"\[3 tokens, .*context \d+/128\]", prompt(child))


def test_a_message_that_the_template_refuses_does_not_end_the_chat(terminal: Terminal) -> None:
    child = terminal("--max-tokens", 3)
    child.sendline("forbidden")
    child.expect_exact("refused: forbidden")
    assert child.expect([r"\n(?:\x1b\[\?2004h)?> $", pexpect.EOF]) == 0


def test_a_question_is_answered_and_ctrl_c_stops_only_the_answer(terminal: Terminal, smollm2_path: Path) -> None:
    child = terminal("--max-tokens", 400, verifier=smollm2_path)
    child.sendline("Count from one to ten thousand in words, one number on each line.")
    child.expect(r"(?i)\bthree\b|3|\n.*\n.*\n")
    child.sendintr()
    child.expect_exact("[stopped]")
    assert re.search(r"\[\d+ tokens, [\d.]+ tokens/s, context \d+/\d+\]", prompt(child))
    child.sendline("What is the capital of France? Answer with one word.")
    answer = prompt(child)
    assert "Paris" in answer
    assert "[stopped]" not in answer
    child.sendline("/exit")
    assert status_of(child) == 0
