"""The chat program in a terminal, as a user sees it."""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import conversations
import pytest
from conversations import Talking, ask
from terminals import HEIGHT, Terminal, chat_command

from via_sd_local.chat.conversation import Conversation

talking, tiny_path = conversations.talking, conversations.tiny_path

UP, TAB, ALT_ENTER = "\x1b[A", "\t", "\x1b\r"
AGAIN = "(to leave, press Ctrl-C again or Ctrl-D, or type /exit)"
Start = Callable[..., Terminal]


@pytest.fixture
def start(tiny_path: Path, tmp_path: Path) -> Iterator[Start]:
    """`start("--system", "…")` starts the chat in a terminal and waits for its prompt."""
    terminals: list[Terminal] = []

    def make(
        *options: object, verifier: Path = tiny_path, env: dict[str, str | None] | None = None, **size: int
    ) -> Terminal:
        variables = {"VIA_SD_HOME": str(tmp_path), **(env or {})}
        terminal = Terminal(chat_command(verifier, "--max-tokens", 3, "--temperature", 0, *options), variables, **size)
        terminals.append(terminal)
        terminal.wait_for_prompt()
        return terminal

    yield make
    for terminal in terminals:
        terminal.close()


def send_line(terminal: Terminal, text: str, answer: str) -> None:
    """Type a line; wait for what follows it and the next prompt."""
    before = terminal.text.count(answer)
    terminal.send(text + "\r")
    terminal.wait_for(answer, before + 1)
    terminal.wait_for_prompt()


@pytest.mark.parametrize("leave", ["/exit\r", " exit \r", "/bye\r", "\x04"], ids=["exit", "bare", "bye", "ctrl-d"])
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_exit_and_the_end_of_input_leave_with_status_0(leave: str, term: str, start: Start) -> None:
    terminal = start(env={"TERM": term})
    terminal.send(leave)
    assert terminal.status() == 0
    assert "Traceback" not in terminal.text


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_ctrl_c_at_the_prompt_leaves_when_pressed_twice(term: str, start: Start) -> None:
    terminal = start(env={"TERM": term})
    terminal.press_ctrl_c()
    terminal.wait_for(AGAIN)
    terminal.wait_for_prompt()
    send_line(terminal, "the sea", "context ")
    terminal.press_ctrl_c()
    terminal.wait_for(AGAIN, 2)
    terminal.wait_for_prompt()
    terminal.press_ctrl_c()
    assert terminal.status() == 130
    assert "Traceback" not in terminal.text


def test_ctrl_c_discards_a_line_that_was_being_typed(start: Start) -> None:
    terminal = start()
    terminal.send("half a mess")
    terminal.wait_for("half a mess")
    terminal.press_ctrl_c()
    terminal.wait_for("> half a mess^C")
    terminal.wait_for_prompt()
    assert AGAIN not in terminal.text
    terminal.press_ctrl_c()
    terminal.wait_for(AGAIN)
    terminal.wait_for_prompt()
    terminal.send(UP)  # it is not lost
    terminal.wait_for("> half a mess", 2)


def test_a_question_is_answered_and_the_status_line_follows(start: Start) -> None:
    terminal = start("--system", "be short")
    send_line(terminal, "the sea", "context ")
    rows = terminal.rows
    assert rows[0] == "tiny.gguf, plain mode, temperature 0; /help for commands"
    assert rows[1] == "> the sea"
    assert re.fullmatch(r"\[3 tokens, [\d.]+ tokens/s, context \d+/512\]", rows[-2])
    assert rows[-3] == "(cut short by --max-tokens; /continue goes on)"
    assert len(rows) > 5
    assert rows[-1] == ">"


def test_a_paste_of_many_lines_is_one_message(start: Start) -> None:
    terminal = start()
    terminal.send("\x1b[200~forbidden one\nand two\r\n\x1b[201~")
    terminal.wait_for("and two")
    assert terminal.rows[-2:] == ["> forbidden one", "  and two"]
    terminal.send("\r")
    terminal.wait_for("error: the chat template cannot render this conversation: refused: forbidden one / and two")
    terminal.wait_for_prompt()


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_a_paste_is_one_message_also_without_bracketed_paste(term: str, start: Start) -> None:
    terminal = start(env={"TERM": term})
    terminal.send("forbidden one\rand two\r")
    terminal.wait_for("refused: forbidden one / and two")
    terminal.wait_for_prompt()


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_lines_typed_while_a_command_runs_are_messages_of_their_own(term: str, start: Start, tmp_path: Path) -> None:
    """They wait in the terminal; that they are there together does not make them a paste."""
    slow = tmp_path / "slow.json"
    os.mkfifo(slow)
    terminal = start(env={"TERM": term})
    terminal.send(f"/load {slow}\r")
    terminal.wait_for("slow.json")
    with slow.open("w", encoding="utf-8") as file:  # when the chat has opened it, too
        typed = "forbidden one\rforbidden two\r"
        terminal.send(typed)
        terminal.wait_until_typed(len(typed))  # else they might arrive at the next prompt, as a paste does
        file.write("{}")
    terminal.wait_for("refused: forbidden one")
    terminal.wait_for("refused: forbidden two")
    terminal.wait_for_prompt()
    assert "one / forbidden" not in terminal.text


def test_where_pastes_are_marked_two_quick_lines_are_two_messages(start: Start) -> None:
    terminal = start()
    terminal.send("\x1b[200~forbidden paste\x1b[201~")
    send_line(terminal, "", "refused: forbidden paste")
    terminal.send("forbidden one\rforbidden two\r")
    terminal.wait_for("refused: forbidden one")
    terminal.wait_for("refused: forbidden two")
    terminal.wait_for_prompt()
    assert "one / forbidden" not in terminal.text


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_paste_that_is_taller_than_the_window_is_in_the_scrollback(end: str, start: Start) -> None:
    terminal = start(columns=100, lines=24)
    lines = [f"forbidden {number} " + "word " * 10 + "end" for number in range(50)]
    terminal.send("\x1b[200~" + "\n".join(lines) + f"{end}\x1b[201~")
    terminal.wait_for(f"forbidden 49 {'word ' * 10}end")
    terminal.send("\r")
    terminal.wait_for("refused: ")
    terminal.wait_for_prompt()
    rows = terminal.all_rows
    at = rows.index(f"> {lines[0]}")
    assert rows[at + 1 : at + 50] == [f"  {line}" for line in lines[1:]]


def test_in_a_dumb_terminal_a_line_can_be_long_and_edited(start: Start) -> None:
    terminal = start(env={"TERM": "dumb"})
    terminal.send("forbidden " + "x" * 6000 + "end\r")
    terminal.wait(lambda: terminal.text.replace("\n", "").count("x" * 6000 + "end") == 2, "the line and the refusal")
    terminal.wait_for_prompt()
    terminal.send("forbidden wrond\x7fg wordx\x17ä\x7fone two\r")
    terminal.wait_for("refused: forbidden wrong one two")
    assert "> forbidden wrong one two" in terminal.rows
    terminal.wait_for_prompt()
    terminal.send("gone\x15forbidden all\r")
    terminal.wait_for("refused: forbidden all")
    terminal.wait_for_prompt()
    terminal.send("half")
    terminal.wait_for("> half")
    terminal.press_ctrl_c()
    terminal.wait_for("half^C")
    terminal.wait_for_prompt()
    assert AGAIN not in terminal.text
    assert b"\x1b" not in terminal.written


def test_alt_enter_begins_another_line(start: Start) -> None:
    terminal = start()
    terminal.send("forbidden one" + ALT_ENTER + "and two")
    terminal.wait_for("  and two")
    terminal.send("\r")
    terminal.wait_for("refused: forbidden one / and two")


def test_messages_are_remembered_until_the_next_start_for_the_users_eyes_only(start: Start, tmp_path: Path) -> None:
    terminal = start()
    send_line(terminal, "forbidden é", "refused: forbidden é")
    terminal.send("\x04")
    assert terminal.status() == 0
    assert stat.S_IMODE((tmp_path / "chat_history").stat().st_mode) == 0o600
    again = start()
    again.send(UP)
    again.wait_for("> forbidden é")
    again.send("\r")
    again.wait_for("refused: forbidden é")


def test_without_a_place_for_the_history_the_chat_works(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    terminal = start(env={"VIA_SD_HOME": str(tmp_path / "file")})
    send_line(terminal, "the sea", "context ")
    terminal.send(UP)
    terminal.wait_for("> the sea", 2)


def test_commands_are_completed(start: Start) -> None:
    terminal = start()
    terminal.send("/he")
    # the menu, which first lists all commands: a tab before it has settled is lost
    terminal.wait(lambda: terminal.rows[-1].strip() == "/help", "menu of one")
    terminal.send(TAB)
    terminal.wait_for("> /help")
    terminal.send("\r")
    terminal.wait_for("Ctrl-D leaves.")
    terminal.wait_for_prompt()
    terminal.send("/mode ti")
    terminal.wait(lambda: terminal.rows[-1].strip() == "tiered", "menu")
    terminal.send(TAB)
    terminal.wait_for("> /mode tiered")


def test_a_resize_redraws_what_is_being_typed(start: Start) -> None:
    terminal = start()
    text = "forbidden " + "word " * 14 + "end"
    terminal.send(text)
    terminal.wait_for(f"> {text}")
    terminal.resize(40, HEIGHT)
    shown = ["> forbidden word word word word word wor", "  d word word word word word word word w", "  ord end"]
    terminal.wait(lambda: terminal.rows[-3:] == shown, "three rows")
    terminal.send("\r")
    terminal.wait_for("error:")
    terminal.wait_for_prompt()
    send_line(terminal, "/undo", "there is no message yet")


def test_on_40_columns_no_word_is_broken(start: Start) -> None:
    terminal = start(columns=40, lines=30)
    terminal.send("/help\r")
    terminal.wait_for("Ctrl-D leaves.")
    terminal.wait_for_prompt()
    for words in ("/mode [MODE [LAYERS | BUDGET]]", "decided", "leaves when pressed twice"):
        assert words in " ".join(terminal.text.split())
    send_line(terminal, "the sea", "/512]")
    assert re.search(r"\[3 tokens, [\d.]+ tokens/s, context\n\d+/512\]", terminal.text)


def sgr(terminal: Terminal) -> set[bytes]:
    """The colours and styles that the program asked for."""
    return set(re.findall(rb"\x1b\[([\d;]*)m", terminal.written)) - {b"", b"0"}


def test_a_dumb_terminal_gets_no_escape_sequence(start: Start) -> None:
    terminal = start(env={"TERM": "dumb"})
    send_line(terminal, "the sea", "context ")
    send_line(terminal, "/colors", "error: colours are not available here")
    terminal.send("\x04")
    assert terminal.status() == 0
    assert b"\x1b" not in terminal.written


def test_no_color_means_no_colour(start: Start, tiny_path: Path) -> None:
    plain, colored = start(env={"NO_COLOR": "1"}), start()
    for terminal in (plain, colored):
        send_line(terminal, "the sea", "context ")
    send_line(plain, "/colors", "error: colours are not available here")
    send_line(colored, "/colors", "■ full")
    assert sgr(plain) <= {b"1", b"2", b"4", b"1;4"}  # bold, dim and underlined only
    assert b"94" in sgr(colored)


def test_tokens_and_legend_have_colours(start: Start, tiny_path: Path) -> None:
    options = ("--draft", tiny_path, "--mode", "tiered", "--mask", "2", "--thresholds", "joint:0.001,0.001")
    terminal = start(*options, "--draft-tokens", 3, "--max-tokens", 30)
    send_line(terminal, "/colors", "colours on")
    send_line(terminal, "the sea", "lossy: ")
    assert len({terminal.cells(f"■ {tier}")[0].fg for tier in ("accepted", "draft", "slim", "full")}) == 4
    legend = next(row for row in reversed(terminal.rows) if row.startswith("■ accepted"))
    assert re.fullmatch(r"■ accepted \d+%  ■ draft \d+%  ■ slim \d+%  ■ full \d+%", legend)
    assert re.search(r"× plain \([\d.]+\), draft \d+% slim \d+%", terminal.text.replace("\n", " "))  # noqa: RUF001


def test_into_a_pipe_goes_the_bare_answer(tiny_path: Path, tmp_path: Path, talking: Talking) -> None:
    command = " ".join(str(part) for part in chat_command(tiny_path, "--max-tokens", 3))
    shell = f"{command} 2>{tmp_path}/err | cat > {tmp_path}/out"
    terminal = Terminal(["/bin/sh", "-c", shell], {"VIA_SD_HOME": str(tmp_path)})
    try:
        terminal.send("the sea\r\x04")
        assert terminal.status() == 0
    finally:
        terminal.close()
    answer = ask(talking(n_ctx=512, max_tokens=3), "the sea")
    assert (tmp_path / "out").read_bytes().decode() == answer + "\n\n"
    # the end of input comes with the line, or is found at a second prompt, by how fast the program starts
    said = r"tiny.gguf, .*\n> \(cut short by --max-tokens; /continue goes on\)\n\[3 tokens, .*\]\n(> )?\(kept: .*\)\n"
    assert re.fullmatch(said, (tmp_path / "err").read_text())


EVIL = "a\x1b]0;title\x07b"
SHOWN = "a^[]0;title^Gb"


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_what_files_pastes_and_commands_contain_is_shown_and_not_obeyed(
    term: str, start: Start, tmp_path: Path
) -> None:
    conversation = Conversation(f"system {EVIL}")
    conversation.add(f"question {EVIL}", f"answer {EVIL}")
    saved = tmp_path / "evil.json"
    saved.write_text(conversation.to_json(), encoding="utf-8")
    terminal = start(env={"TERM": term})
    send_line(terminal, f"/load {saved}", "exchange")
    send_line(terminal, "/system", f"(system message: system {SHOWN})")
    send_line(terminal, "/undo", f"(removed: question {SHOWN})")
    if term != "dumb":  # there, Ctrl-G and the like cannot be typed into a line
        terminal.send(f"\x1b[200~/load {EVIL}\x1b[201~\r")
        terminal.wait_for(f"error: {SHOWN} cannot be read")
    assert b"\x1b]0;" not in terminal.written
    assert b"\x07" not in terminal.written


@pytest.mark.parametrize(
    "command", ["echo hi | {python} -m via_sd_local.chat", "{python} -m via_sd_local complete --prompt hi"]
)
def test_control_characters_of_an_answer_reach_a_pipe_and_no_terminal(
    command: str, tiny_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "g").write_text(r'root ::= "a\x1B]0;title\x07b"', encoding="utf-8")
    command = command.format(python=sys.executable) + f" --verifier {tiny_path} --threads 1 --grammar-file {tmp_path}/g"
    for redirection in ("", f" > {tmp_path}/out"):
        terminal = Terminal(["/bin/sh", "-c", command + redirection], {"VIA_SD_HOME": str(tmp_path)})
        try:
            assert terminal.status() == 0
        finally:
            terminal.close()
        assert terminal.rows == ([SHOWN] if not redirection else [])
        assert b"\x1b" not in terminal.written.replace(b"\r\x1b[K", b"")  # which removes "loading …" again
    assert (tmp_path / "out").read_bytes() == EVIL.encode() + b"\n"


def test_a_message_that_is_too_long_does_not_end_the_chat(start: Start) -> None:
    terminal = start("--n-ctx", 128)
    terminal.send("the sea " * 60 + "\r")
    terminal.wait(lambda: "error: this message takes" in terminal.text, "refusal")
    terminal.wait_for_prompt()
    assert re.search(r"error: this message takes \d+ tokens, \d+ more than fit", terminal.text.replace("\n", " "))
    send_line(terminal, "the sea", "/128]")


def test_a_full_context_is_announced(start: Start) -> None:
    terminal = start("--n-ctx", 128, "--system", "be short")
    for number in range(1, 7):
        send_line(terminal, f"the sea {number}", "/128]")
    assert re.search(r"\(the context is full: the model no longer sees the \d+ oldest messages\)", terminal.text)


#
# with a real model, which takes its time
#


def begin_a_story(terminal: Terminal) -> None:
    """Ask for a long answer and wait until some of it is there."""
    question = "Write a long story about a ship."
    terminal.send(f"{question}\r")
    terminal.wait(lambda: terminal.text.partition(question)[2].count(" ") > 3, "words of an answer")


def test_what_is_typed_during_an_answer_is_shown_after_it(start: Start, smollm2_path: Path) -> None:
    terminal = start("--max-tokens", 60, verifier=smollm2_path)
    begin_a_story(terminal)
    terminal.send("typed meanwhile")
    terminal.wait(lambda: terminal.rows[-1] == "> typed meanwhile", "what was typed meanwhile")
    assert terminal.text.count("typed meanwhile") == 1
    assert "[60 tokens, " in terminal.rows[-2]
    terminal.send("\r")
    terminal.wait_for(" tokens/s, ", 2)  # of the second answer
    terminal.wait_for_prompt()


def test_ctrl_c_stops_an_answer_and_keeps_what_was_written(start: Start, smollm2_path: Path) -> None:
    terminal = start("--max-tokens", 2000, verifier=smollm2_path)
    begin_a_story(terminal)
    terminal.press_ctrl_c()
    terminal.wait_for("[stopped]")
    terminal.wait_for("context ")
    terminal.wait_for_prompt()
    send_line(terminal, "What is the capital of France? Answer with one word.", "Paris")
    terminal.send("/stats\r")
    terminal.wait_for("full passes")
    reused = re.findall(r"tokens, (\d+) of them known from earlier turns", terminal.text)
    assert int(reused[-1]) > 40  # the question, and what was written of its answer
    terminal.wait_for_prompt()
    terminal.send("/exit\r")
    assert terminal.status() == 0


def test_loading_and_measuring_are_told_while_they_last(start: Start, smollm2_path: Path) -> None:
    terminal = start("--draft", smollm2_path, verifier=smollm2_path)
    written = terminal.written.decode()
    for words in ("loading SmolLM2-135M-Instruct.Q4_1.gguf …", "measuring how long passes take …"):
        assert words in written
        assert words not in terminal.text
    assert terminal.rows[0].startswith("SmolLM2-135M-Instruct.Q4_1.gguf, sd mode")
    terminal.send("/draft none\r")
    terminal.wait_for("(mode plain)")
    terminal.wait_for_prompt()


def test_ctrl_c_stops_the_reading_of_a_long_message(start: Start, smollm2_path: Path) -> None:
    terminal = start("--max-tokens", 20, verifier=smollm2_path)
    long = "the sea is wide and deep, and ships sail over it. " * 280
    terminal.send(f"\x1b[200~{long}\x1b[201~")
    terminal.wait_for("sail over it.")
    terminal.send("\r")
    terminal.wait_for("tokens; Ctrl-C stops it …")
    count = re.search(r"reading (\d+) tokens", terminal.text)
    assert count
    assert int(count[1]) > 3000
    terminal.press_ctrl_c()
    terminal.wait_for("[stopped]")
    terminal.wait_for_prompt()
    assert "reading" not in terminal.text
    assert terminal.rows[-2:] == ["[stopped]", ">"]
    send_line(terminal, "What is the capital of France? Answer with one word.", "Paris")
    send_line(terminal, "/undo", "(removed: What is the capital")
    send_line(terminal, "/undo", "error: there is no message yet")  # the long message is no turn


def test_two_quick_ctrl_c_stop_an_answer_and_lose_nothing(start: Start, smollm2_path: Path) -> None:
    terminal = start("--max-tokens", 2000, verifier=smollm2_path)
    begin_a_story(terminal)
    terminal.press_ctrl_c()
    terminal.press_ctrl_c()
    terminal.wait_for("[stopped]")
    terminal.wait_for_prompt()
    send_line(terminal, "/undo", "(removed: Write a long story about a ship.)")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_during_an_answer_restores_the_terminal_and_keeps_the_conversation(
    number: signal.Signals, start: Start, smollm2_path: Path, tmp_path: Path
) -> None:
    terminal = start("--max-tokens", 2000, verifier=smollm2_path)
    begin_a_story(terminal)
    if number == signal.SIGQUIT:
        terminal.send("\x1c")  # Ctrl-\
    else:
        os.kill(terminal.child.pid, number)
    terminal.wait_for("(kept: --continue goes on")
    flags = termios.ICANON | termios.ECHO | termios.ISIG
    assert termios.tcgetattr(terminal.child.child_fd)[3] & flags == flags
    assert terminal.status() == 128 + number
    assert "Traceback" not in terminal.text
    (file,) = (tmp_path / "conversations").iterdir()
    question, answer = Conversation.from_json(file.read_text(encoding="utf-8")).last
    assert question == "Write a long story about a ship."
    assert len(answer.split()) > 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_the_prompt_ends_the_chat(number: signal.Signals, start: Start) -> None:
    terminal = start()
    os.kill(terminal.child.pid, number)
    assert terminal.status() == 128 + number
    assert "Traceback" not in terminal.text


def test_a_terminal_that_dies_loses_nothing(start: Start, tmp_path: Path) -> None:
    terminal = start()
    send_line(terminal, "the sea", "context ")
    terminal.child.close(force=True)
    (file,) = (tmp_path / "conversations").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = start("--continue")
    assert "> the sea" in again.rows
    send_line(again, "and then", "context ")
    again.send("/exit\r")
    assert again.status() == 0
    assert [path.name for path in (tmp_path / "conversations").iterdir()] == [file.name]
    turns = Conversation.from_json(file.read_text(encoding="utf-8")).turns
    assert [turn["content"] for turn in turns[::2]] == ["the sea", "and then"]
