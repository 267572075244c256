"""Files that are written whole or not at all, and text files that are read with one kind of error."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from via_sd_local.errors import ModelError
from via_sd_local.files import read_text, replacing, replacing_path, temporary_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_takes_the_place_of_a_file_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as file:
        file.write("größer")
        assert path.read_text() == "old"
    assert path.read_bytes() == "größer".encode()
    assert names(tmp_path) == ["a.txt"]


def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    with replacing(tmp_path / "a.bin", "wb") as file:
        file.write(b"\xff\n\r\n")
    assert (tmp_path / "a.bin").read_bytes() == b"\xff\n\r\n"


def fail_inside(block: AbstractContextManager[Any], error: BaseException) -> None:
    """Write half a file inside a block, then raise."""
    with block as partial:
        if isinstance(partial, Path):
            partial.write_text("half")
        else:
            partial.write("half")
        raise error


@pytest.mark.parametrize("replace", [replacing, replacing_path])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device"), ValueError()])
def test_a_block_that_fails_leaves_the_file_that_was_there(
    tmp_path: Path, replace: Callable[[Path], AbstractContextManager[Any]], error: BaseException
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(type(error)):
        fail_inside(replace(path), error)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_disk_that_is_full_at_the_end_leaves_the_file_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.txt"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), replacing(path) as file:
        file.write("new")
    with pytest.raises(OSError, match="No space left"), replacing_path(path) as partial:
        partial.write_text("new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_the_data_is_on_disk_before_the_file_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append("fsync"), fsync(descriptor))[1])
    monkeypatch.setattr(os, "replace", lambda old, new: (calls.append("replace"), replace(old, new))[1])
    with replacing(tmp_path / "a") as file:
        file.write("text")
    with replacing_path(tmp_path / "b") as partial:
        partial.write_text("text")
    assert calls == ["fsync", "replace"] * 2


def test_a_folder_that_is_absent_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "no" / "a.txt"):
        pass


def test_a_block_that_creates_no_file_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), replacing_path(path):
        pass
    assert path.read_text() == "old"


def test_temporary_paths_lie_beside_the_file_and_differ(tmp_path: Path) -> None:
    with temporary_path(tmp_path / "m.gguf") as one, temporary_path(tmp_path / "m.gguf") as other:
        assert one != other
        assert one.parent == other.parent == tmp_path
        assert re.fullmatch(r"\.m\.gguf\.[0-9a-f]{16}\.part", one.name)
        one.touch()
    assert names(tmp_path) == []


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbftext")
    assert read_text(path, "prompt") == "text"


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match=r"the prompt file .*binary is not UTF-8 text"):
        read_text(tmp_path / "binary", "prompt")
    with pytest.raises(ModelError, match=r"the grammar file .*absent cannot be read: No such file"):
        read_text(str(tmp_path / "absent"), "grammar")
