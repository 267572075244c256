"""Files that go with a message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from via_sd_local.chat.attachment import Attachment, read_attachment, with_attachments


def test_a_file_is_fenced_before_the_message() -> None:
    notes, code = Attachment("notes.txt", "one\ntwo\n\n", 3), Attachment("x.md", "```py\nx\n```", 5)
    assert with_attachments([notes, code], "What is this?") == (
        "notes.txt:\n```\none\ntwo\n```\n\nx.md:\n````\n```py\nx\n```\n````\n\nWhat is this?"
    )
    assert with_attachments([], "Hello") == "Hello"


def test_a_file_is_read_with_its_tokens_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "n.txt").write_text("a é b", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_attachment("~/n.txt", str.split, 100) == Attachment("n.txt", "a é b", 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "f does not exist; check the path"),
        (b"\xff\xfe", "f is not UTF-8 text"),
        (b"a " * 10, "f has 10 tokens; the context holds 10 (--n-ctx)"),
        (b"x" * 641, "f has 641 bytes; that does not fit the context of 10 tokens (--n-ctx)"),
    ],
)
def test_what_cannot_go_with_a_message_is_refused(
    content: bytes | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("f").write_bytes(content)
    with pytest.raises(ValueError, match="f ") as caught:
        read_attachment("f", str.split, 10)
    assert str(caught.value) == message


def test_folders_pipes_and_strange_homes_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # which would be read for ever
    for name in (str(tmp_path), str(tmp_path / "pipe")):
        with pytest.raises(ValueError, match="is not a file"):
            read_attachment(name, str.split, 10)
    with pytest.raises(ValueError, match="~nosuchuser/x does not exist"):
        read_attachment("~nosuchuser/x", str.split, 10)
