"""The conversation: which turns a prompt holds, what survives an interruption, and the program in a terminal."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tiny

from via_sd_local import chat
from via_sd_local.chat_format import ChatFormat, Message
from via_sd_local.errors import ModelError
from via_sd_local.sampling import SamplingParams
from via_sd_local.session import Session
from via_sd_local.settings import Settings

pexpect = pytest.importorskip("pexpect")

LLAMA = tiny.spec("llama")
TEMPLATE = (
    "{% if 'forbidden' in messages[-1].content %}"
    "{{ raise_exception('refused: ' ~ messages[-1].content | replace('\n', ' / ')) }}"
    "{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
)
GREEDY = SamplingParams()


class Recorder(ChatFormat):
    """A chat format that remembers the messages that it rendered last, and their tokens."""

    messages: list[Message]
    prompt: list[int]

    def tokens(self, messages: Any) -> list[int]:
        self.messages = list(messages)
        self.prompt = super().tokens(messages)
        return self.prompt


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with TEMPLATE."""
    path = tmp_path_factory.mktemp("chat") / "tiny.gguf"
    return tiny.write(path, LLAMA, overrides={"tokenizer.chat_template": TEMPLATE})


@pytest.fixture
def talking(tiny_path: Path, keep: Callable[[Any], Any]) -> Callable[..., chat.Conversation]:
    """`talking(system="…", n_ctx=256)` begins a conversation with the tiny model."""

    def make(system: str | None = None, n_ctx: int = 256, **options: Any) -> chat.Conversation:
        options.setdefault("draft_tokens", 3)
        session = keep(Session(Settings(str(tiny_path), n_ctx=n_ctx, threads=1, **options)))
        return chat.Conversation(session, Recorder(session.model), system)

    return make


Talking = Callable[..., chat.Conversation]


def ask(conversation: chat.Conversation, text: str, max_tokens: int | None = 5) -> str:
    return "".join(conversation.answer(text, max_tokens, GREEDY))


#
# the conversation
#


def test_a_prompt_is_the_system_message_the_turns_and_the_new_message(talking: Talking) -> None:
    conversation = talking("be short")
    first = ask(conversation, "one")
    second = ask(conversation, "two")
    conversation.prompt_for("three")
    assert conversation.form.messages == [  # type: ignore[attr-defined]
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": second},
        {"role": "user", "content": "three"},
    ]
    assert first
    assert len(conversation.turns) == 4  # asking for a prompt changes nothing


def test_without_a_system_text_there_is_no_system_message(talking: Talking) -> None:
    for system in (None, ""):
        conversation = talking(system)
        conversation.prompt_for("one")
        assert [message["role"] for message in conversation.form.messages] == ["user"]  # type: ignore[attr-defined]


def test_the_second_turn_reuses_the_kv_cache_of_the_first(talking: Talking) -> None:
    conversation = talking("be short")
    ask(conversation, "the sea")
    prompt = list(conversation.form.prompt)  # type: ignore[attr-defined]
    assert conversation.session.engine.stats.reused_tokens == 0
    ask(conversation, "and then")
    stats = conversation.session.engine.stats
    assert len(prompt) <= stats.reused_tokens < stats.prompt_tokens


def test_a_real_model_reuses_its_own_answer_too(smollm2_path: Path) -> None:
    with closing(Session(Settings(str(smollm2_path), n_ctx=256, threads=1))) as session:
        conversation = chat.Conversation(session, ChatFormat(session.model), None)
        assert ask(conversation, "Name a colour.", 8)
        first = session.engine.stats
        ask(conversation, "Another one.", 2)
        assert session.engine.stats.reused_tokens >= first.prompt_tokens + first.completion_tokens - 1


def test_when_the_context_is_full_the_oldest_turns_go_and_the_system_message_stays(
    talking: Talking, capsys: pytest.CaptureFixture[str]
) -> None:
    conversation = talking("be short", n_ctx=128)
    asked: list[str] = []
    dropped = 0
    for number in range(12):
        asked.append(f"the sea in number {number}")
        ask(conversation, asked[-1], 4)
        messages, prompt = conversation.form.messages, conversation.form.prompt  # type: ignore[attr-defined]
        assert messages[0] == {"role": "system", "content": "be short"}
        users = [message["content"] for message in messages if message["role"] == "user"]
        assert users == asked[-len(users) :]
        assert all(one["role"] != other["role"] for one, other in pairwise(messages))
        assert messages[1]["role"] == "user"
        assert len(prompt) <= 128 - 32  # a quarter stays free for the answer
        note = capsys.readouterr().err
        if note:
            match = re.fullmatch(r"\(the context is full: the (\d+) oldest messages were dropped\)\n", note)
            assert match
            dropped += int(match[1])
        assert 2 * (number + 1) - dropped == len(conversation.turns)
    assert dropped > 4
    assert len(conversation.turns) > 2  # and no more than needed


def test_no_more_turns_are_dropped_than_must_be(talking: Talking) -> None:
    conversation = talking(n_ctx=128)
    checked = 0
    for number in range(12):
        before = list(conversation.turns)
        tokens, dropped = conversation.prompt_for(f"the sea {number}")
        if dropped:
            longer = ChatFormat(conversation.session.model).tokens(
                [*before[dropped - 2 :], {"role": "user", "content": f"the sea {number}"}]
            )
            assert len(tokens) <= 96 < len(longer)
            checked += 1
        ask(conversation, f"the sea {number}", 4)
    assert checked > 4


def test_a_large_context_keeps_64_tokens_for_the_answer(talking: Talking) -> None:
    conversation = talking(n_ctx=512)
    with pytest.raises(ValueError, match="of which 64 are kept for the answer"):
        conversation.prompt_for("the sea " * 400)


def test_a_message_that_is_too_long_is_refused_with_the_numbers_and_changes_nothing(talking: Talking) -> None:
    conversation = talking("be short", n_ctx=128)
    ask(conversation, "one")
    turns = list(conversation.turns)
    with pytest.raises(ValueError, match="this message takes") as caught:
        ask(conversation, "the sea " * 100)
    numbers = [int(number) for number in re.findall(r"\d+", str(caught.value))]
    needed = len(conversation.form.prompt)  # type: ignore[attr-defined]
    assert numbers == [needed, needed - 96, 128, 32]
    assert "\n" not in str(caught.value)
    assert conversation.turns == turns
    assert ask(conversation, "two")


def test_an_abandoned_answer_becomes_a_turn_as_far_as_it_was_read(talking: Talking) -> None:
    conversation = talking()
    answer = conversation.answer("the sea", None, GREEDY)
    read = next(answer) + next(answer)
    answer.close()  # type: ignore[attr-defined]
    assert conversation.turns == [{"role": "user", "content": "the sea"}, {"role": "assistant", "content": read}]
    continued = ask(conversation, "and then")

    other = talking()
    other.turns = conversation.turns[:2]
    assert ask(other, "and then") == continued  # the cache of the first is right, too


def test_an_interrupted_answer_becomes_a_turn(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = talking()
    verifier = conversation.session.engine.verifier
    original, passes = verifier.full, 0

    def interrupted(*args: Any) -> Any:
        nonlocal passes
        passes += 1
        if passes == 4:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(verifier, "full", interrupted)
    read: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        read.extend(conversation.answer("the sea", None, GREEDY))
    assert len(read) == 3
    assert conversation.turns[1] == {"role": "assistant", "content": "".join(read)}
    monkeypatch.undo()
    continued = ask(conversation, "and then")
    other = talking()
    other.turns = conversation.turns[:2]
    assert ask(other, "and then") == continued


def test_an_answer_that_could_not_begin_is_no_turn(talking: Talking) -> None:
    conversation = talking()
    with pytest.raises(ModelError):
        ask(conversation, "forbidden")
    assert conversation.turns == []


def test_an_answer_that_the_engine_refuses_is_no_turn(talking: Talking) -> None:
    conversation = talking()
    with pytest.raises(ValueError, match="the grammar does not parse"):
        list(conversation.answer("one", 5, SamplingParams(grammar="root ::= (")))
    assert conversation.turns == []


def test_the_parts_of_an_answer_are_whole_characters(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = talking()
    pieces = iter([bytes([byte]) for byte in "é😀".encode()[:-1]])
    monkeypatch.setattr(type(conversation.session.model), "piece", lambda _self, _token: next(pieces))
    parts = list(conversation.answer("the sea", 5, GREEDY))
    assert "".join(parts) == "é\ufffd" == conversation.turns[1]["content"]


def test_clear_forgets_the_turns_and_keeps_the_system_message(
    talking: Talking, capsys: pytest.CaptureFixture[str]
) -> None:
    conversation = talking("be short")
    ask(conversation, "one")
    chat.command("/clear", conversation)
    assert "forgotten" in capsys.readouterr().err
    conversation.prompt_for("two")
    assert [m["content"] for m in conversation.form.messages] == ["be short", "two"]  # type: ignore[attr-defined]


def test_the_status_line_says_what_the_stats_say(talking: Talking) -> None:
    conversation = talking(drafter="lookup", mode="tiered", mask="2")
    ask(conversation, "the sea the sea the sea", 30)
    stats, line = conversation.session.engine.stats, chat.status_line(conversation.session)
    assert stats.drafted > 0
    assert stats.rejection_rate not in (None, 0.5)
    for words in (
        "[30 tokens, ",
        f", {stats.tokens_per_second:.1f} tokens/s, ",
        f", {1 - stats.rejection_rate:.0%} of {stats.drafted} drafted tokens accepted, ",
        "lossy: ",
        f"context {stats.prompt_tokens + 30}/256]",
    ):
        assert words in line
    plain = talking()
    ask(plain, "one", 1)
    used = plain.session.engine.stats.prompt_tokens + 1
    assert chat.status_line(plain.session) == f"[1 tokens, context {used}/256]"


#
# the program without a terminal
#


@pytest.fixture
def piped(
    tiny_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """`piped(b"question", "--seed", 1)`: status, standard output and error, in this process."""

    def call(data: bytes, *options: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        common = ("--verifier", tiny_path, "--threads", 1, "--max-tokens", 6)
        status = chat.main([str(option) for option in (*common, *options)])
        return (status, *capsys.readouterr())

    return call


Piped = Callable[..., tuple[int, str, str]]


def test_piped_input_gives_one_answer(piped: Piped, talking: Talking) -> None:
    expected = ask(talking("be short"), "the sea\nand then", 6)
    assert piped(b"the sea\nand then\n", "--system", "be short") == (0, expected + "\n", "")
    assert expected != ask(talking(), "the sea\nand then", 6)


def test_a_command_in_piped_input_is_a_question(piped: Piped, talking: Talking) -> None:
    assert piped(b"/exit") == (0, ask(talking(), "/exit", 6) + "\n", "")


def test_piped_bytes_that_are_no_utf_8_do_not_end_the_chat(piped: Piped, talking: Talking) -> None:
    assert piped(b"M\xfcll") == (0, ask(talking(), "M\ufffdll", 6) + "\n", "")


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


def test_a_model_without_a_template_needs_one_given(piped: Piped, talking: Talking, tmp_path: Path) -> None:
    bare = tiny.write(tmp_path / "bare.gguf", LLAMA)
    status, out, err = piped(b"the sea", "--verifier", bare)
    assert (status, out) == (1, "")
    assert err == f"error: {bare}: the file has no chat template; give one with --chat-template FILE\n"
    template = tmp_path / "t.jinja"
    template.write_text(TEMPLATE, encoding="utf-8")
    given = piped(b"the sea", "--verifier", bare, "--chat-template", template)
    assert given == (0, ask(talking(), "the sea", 6) + "\n", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--verifier", "absent.gguf"), "absent.gguf does not exist"),
        (("--verifier", "nonesuch"), "no model is called 'nonesuch'"),
        (("--mode", "exact"), "mode 'exact' needs a mask"),
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


def test_only_models_that_the_catalogue_knows_and_lacks_are_fetched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, tiny_path: Path
) -> None:
    pulled: list[str] = []
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path))
    monkeypatch.setattr("via_sd_local.catalog.pull", pulled.append)
    chat.fetch_if_known(Settings("smollm2-135m", draft=str(tiny_path)))
    assert pulled == ["smollm2-135m"]
    assert capsys.readouterr().err.startswith("fetching the model smollm2-135m")
    with pytest.raises(ModelError, match="did you mean smollm2-135m"):
        chat.fetch_if_known(Settings("smollm2-315m"))
    assert pulled == ["smollm2-135m"]


def test_dev_null_ends_the_chat_at_once_and_without_a_word(tiny_path: Path) -> None:
    command = [sys.executable, "-m", "via_sd_local.chat", "--verifier", str(tiny_path), "--threads", "1"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


#
# the program in a terminal
#


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
