"""Conversations are kept as they go, and found again."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import conversations
import pytest
from conversations import Lines, Recording, Talking, ask

from via_sd_local.chat.archive import Archive, Journal
from via_sd_local.chat.chat import Chat
from via_sd_local.chat.conversation import Conversation
from via_sd_local.chat.dialogue import Dialogue
from via_sd_local.chat.loop import greet, talk
from via_sd_local.chat.switches import Switches

talking, tiny_path = conversations.talking, conversations.tiny_path
KeptTalk = Callable[..., Recording]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "conversations", kept=3)


@pytest.fixture
def kept(archive: Archive) -> KeptTalk:
    """`kept(dialogue, "message", …)` is `converse` with a journal."""

    def run(dialogue: Dialogue, *messages: str | BaseException, journal: Journal | None = None) -> Recording:
        display = Recording()
        chat = Chat(dialogue, display, Switches(dialogue.session.settings), journal or Journal(archive))
        greet(chat)
        assert talk(chat, Lines(messages)) == 0
        return display

    return run


def said(*questions: str) -> Conversation:
    conversation = Conversation()
    for question in questions:
        conversation.add(question, f"answer to {question}")
    return conversation


def aged(path: Path, seconds: float) -> Path:
    os.utime(path, (seconds, seconds))
    return path


def test_every_exchange_is_on_disk_for_the_users_eyes_only(archive: Archive, kept: KeptTalk, talking: Talking) -> None:
    dialogue = talking("be short")
    display = kept(dialogue, "one", "two")
    (entry,) = archive.entries()
    assert Conversation.from_json(entry.path.read_text(encoding="utf-8")) == dialogue.conversation
    assert (entry.title, entry.exchanges) == ("one", 2)
    assert stat.S_IMODE(entry.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(entry.path.parent.stat().st_mode) == 0o700
    assert display.of("note")[-1] == "(kept: --continue goes on with this conversation, /resume with any)"
    assert [path.name for path in entry.path.parent.iterdir()] == [entry.path.name]


def test_a_question_is_kept_before_its_answer_and_the_answer_as_it_comes(
    archive: Archive, talking: Talking, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialogue, now = talking(max_tokens=4), 0.0
    journal = Journal(archive, clock=lambda: now)
    states: list[Any] = []

    class Watching(Recording):
        def push(self, pieces: Any) -> None:
            nonlocal now
            (entry,) = archive.entries()
            states.append(Conversation.from_json(entry.path.read_text(encoding="utf-8")).last)
            now += 1.5  # after every second piece, more than 2 s have passed
            super().push(pieces)

    Chat(dialogue, Watching(), Switches(dialogue.session.settings), journal).ask("one")
    pieces = [piece.text for piece in dialogue.pieces]
    assert [question for question, _ in states] == ["one"] * len(states)
    assert [answer for _, answer in states][:4] == ["", "", *["".join(pieces[:2])] * 2]


def test_a_refused_message_leaves_no_trace(archive: Archive, kept: KeptTalk, talking: Talking) -> None:
    kept(talking(), "forbidden")
    assert archive.entries() == []
    dialogue = talking()
    kept(dialogue, "one", "forbidden")
    (entry,) = archive.entries()
    assert entry.exchanges == 1


def test_turns_that_no_longer_fit_are_kept_and_saved(kept: KeptTalk, talking: Talking, tmp_path: Path) -> None:
    dialogue = talking(n_ctx=128)
    questions = [f"the sea in number {number}" for number in range(8)]
    display = kept(dialogue, *questions, f"/save {tmp_path / 'all.json'}")
    assert any("no longer sees the" in note for note in display.of("note"))
    turns = Conversation.from_json((tmp_path / "all.json").read_text(encoding="utf-8")).turns
    assert [turn["content"] for turn in turns[::2]] == questions


def test_resume_lists_by_title_and_goes_on_in_the_same_file(archive: Archive, kept: KeptTalk, talking: Talking) -> None:
    first, second = archive.new_path(), archive.new_path()
    archive.write(said("the first question\nand more of it"), first)
    archive.write(said("the second"), second)
    aged(first, 1000)
    aged(second, 2000)
    dialogue = talking()
    display = kept(
        dialogue, "new", "/resume", "/resume 9", "/resume the", "/resume 2", "go on", "/resume second", "/undo"
    )
    (listing,) = [text for text in display.of("show") if text.startswith("1")]
    lines = listing.splitlines()
    assert [line[:1] for line in lines] == ["1", "2"]
    assert lines[0].endswith("  the second")
    assert lines[1].endswith("  the first question…")
    assert "> the second" in display.of("note")
    assert "answer to the second" in display.of("answer")
    assert "there is no conversation 9" in display.of("error")[0]
    assert "2 conversations have 'the' in the title" in display.of("error")[1]
    turns = Conversation.from_json(first.read_text(encoding="utf-8")).turns
    assert turns[2]["content"] == "go on"
    assert not second.exists()  # what was said there was taken back


def test_clear_and_load_begin_another_file(archive: Archive, kept: KeptTalk, talking: Talking, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(said("loaded").to_json(), encoding="utf-8")
    display = kept(talking(), "one", "/clear", "two", f"/load {tmp_path / 'x.json'}", "three")
    assert [(entry.title, entry.exchanges) for entry in sorted(archive.entries(), key=lambda e: e.title)] == [
        ("loaded", 2),
        ("one", 1),
        ("two", 1),
    ]
    assert "(conversation cleared; /resume brings it back)" in display.of("note")
    assert "> loaded" in display.of("note")
    assert "answer to loaded" in display.of("answer")


def test_a_message_without_an_answer_is_shown_and_left_out_when_resumed(
    archive: Archive, kept: KeptTalk, talking: Talking
) -> None:
    archive.write(said("one").with_exchange("waiting", ""), archive.new_path())
    dialogue = talking()
    display = kept(dialogue, "/resume 1")
    assert "(never answered, and left out: waiting)" in display.of("note")
    assert dialogue.conversation == said("one")


def test_only_the_newest_conversations_are_kept(archive: Archive, tmp_path: Path) -> None:
    for number in range(5):
        path = archive.new_path()
        archive.write(said(f"question {number}"), path)
        aged(path, 1000 + number)
    archive.write(said("last"), archive.new_path())
    assert [entry.title for entry in archive.entries()] == ["last", "question 4", "question 3"]
    assert archive.entries()[0].path == archive.newest()


def test_two_chats_that_go_on_with_one_conversation_part_company(archive: Archive) -> None:
    path = archive.new_path()
    archive.write(said("one"), path)
    first, second = Journal(archive, path), Journal(archive, path)
    first.write(said("one", "two"))
    second.write(said("one", "other"))
    first.write(said("one", "two", "three"))
    assert first.path == path != second.path
    assert sorted(json.loads(file.read_text())["messages"][2]["content"] for file in path.parent.iterdir()) == [
        "other",
        "two",
    ]


def test_a_foreign_file_in_the_folder_is_left_alone_in_the_list(archive: Archive, tmp_path: Path) -> None:
    archive.write(said("one"), archive.new_path())
    (tmp_path / "conversations" / "broken.json").write_text("[" * 100_000)
    assert [entry.title for entry in archive.entries()] == ["one"]


def test_where_nothing_can_be_written_the_chat_says_so_once_and_goes_on(
    kept: KeptTalk, talking: Talking, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    dialogue = talking()
    display = kept(dialogue, "one", "two", "/resume", journal=Journal(Archive(tmp_path / "file" / "conversations")))
    notes = [note for note in display.of("note") if "is not kept" in note]
    assert len(notes) == 1
    assert "Not a directory" in notes[0]
    assert len(display.of("answer")) == 2
    assert display.of("error") == ["there is no earlier conversation"]


def test_without_an_earlier_conversation_there_is_none_to_continue(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tiny_path: Path,
    talking: Talking,
) -> None:
    import io
    import sys

    from via_sd_local.chat.__main__ import main

    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path))
    options = ["--verifier", str(tiny_path), "--threads", "1", "--max-tokens", "3", "--continue"]

    def piped(text: str) -> int:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return main(options)

    assert piped("the sea") == 1
    assert "there is no earlier conversation to continue (--continue)" in capsys.readouterr().err
    archive = Archive.of_user()
    archive.write(said("one"), archive.new_path())
    assert piped("two") == 0
    dialogue = talking(max_tokens=3)
    dialogue.conversation = said("one")
    assert capsys.readouterr().out == ask(dialogue, "two") + "\n"
    assert Conversation.from_json(archive.newest().read_text(encoding="utf-8")) == dialogue.conversation
