"""patches/llama_cpp.py and the pinned source: fetched, unpacked, patched, or refused; and the real patch."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace

import patching
import pytest
from patching import (
    CHANGED,
    CONTEXT,
    GRAPH,
    OTHER,
    PATCHED,
    PATCHES,
    SOURCE,
    Prepare,
    ages,
    archive_of,
    assert_refused,
    diff,
    insert,
    settle,
    tree,
)

prepare, script = patching.prepare, patching.script


#
# the real patch
#


REAL = pytest.mark.parametrize("name", ["layer-skip.patch", "rpc-lost-server.patch"])


@REAL
def test_the_real_patches_only_insert(name: str) -> None:
    lines = (PATCHES / name).read_text(encoding="utf-8").splitlines()
    removed = [line for line in lines if line.startswith("-") and not line.startswith("--- a/")]
    assert removed == []
    assert sum(line.startswith("+") and not line.startswith("+++ b/") for line in lines) > 20
    assert {line[:1] for line in lines} == {"-", "+", "@", " "}


@REAL
def test_the_real_patches_are_read_whole(name: str, script: ModuleType) -> None:
    text = (PATCHES / name).read_text(encoding="utf-8")
    hunks = script.hunks(text)
    assert list(hunks) == [line[6:] for line in text.splitlines() if line.startswith("+++ b/")]
    assert sum(map(len, hunks.values())) == sum(line.startswith("@@") for line in text.splitlines())
    inserted = sum(line.startswith("+") and not line.startswith("+++ ") for line in text.splitlines())
    assert sum(len(after) - len(before) for file in hunks.values() for before, after in file) == inserted
    for file in hunks.values():
        for before, after in file:
            rest = iter(after)
            assert all(line in rest for line in before)  # before is a subsequence of after
            assert len(before) >= 4  # enough context to match one place only


#
# prepare
#


def test_prepare_unpacks_what_a_build_needs_and_patches_it(
    prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare() == 0
    assert tree(tmp_path / "dest" / "llama.cpp") == PATCHED
    assert tree(tmp_path / "dest" / "llama_cpp") == {"__init__.py": "__version__ = 'x'\n", "server/app.py": "app = 1\n"}
    assert sorted(path.name for path in (tmp_path / "dest").iterdir()) == [
        *("LICENSE.md", "applied.patch", "llama.cpp", "llama_cpp", "origin")
    ]
    assert not (tmp_path / "dest.partial").exists()
    assert "patch in place, 2 files written" in capsys.readouterr().out


def test_unpacked_files_have_the_archives_dates(prepare: Prepare, tmp_path: Path) -> None:
    """So that a source that is unpacked anew is not compiled anew."""
    prepare()
    assert (tmp_path / "dest" / "llama.cpp" / "src" / "other.cpp").stat().st_mtime == 1_000_000_000


def test_a_second_run_touches_no_source_file(
    prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare()
    before = settle(tmp_path / "dest" / "llama.cpp")
    python = settle(tmp_path / "dest" / "llama_cpp")
    capsys.readouterr()
    assert prepare() == 0
    assert ages(tmp_path / "dest" / "llama.cpp") == before
    assert ages(tmp_path / "dest" / "llama_cpp") == python
    assert "0 files written" in capsys.readouterr().out


def test_a_patch_that_was_taken_out_by_hand_is_put_back(prepare: Prepare, tmp_path: Path) -> None:
    prepare()
    file = tmp_path / "dest" / "llama.cpp" / GRAPH
    file.write_text(insert(SOURCE[GRAPH], _30="    skipped();"), encoding="utf-8")
    assert prepare() == 0
    assert tree(tmp_path / "dest" / "llama.cpp") == PATCHED


@pytest.mark.parametrize(
    "edited",
    [
        {GRAPH: insert(SOURCE[GRAPH], _5="    if (skips(il)) {", _30="    skipped();"), CONTEXT: CHANGED[CONTEXT]},
        {GRAPH: insert(SOURCE[GRAPH], _30="    skipped();"), CONTEXT: CHANGED[CONTEXT]},
        {GRAPH: insert(CHANGED[GRAPH], _20="    more();"), CONTEXT: CHANGED[CONTEXT]},
        {CONTEXT: CHANGED[CONTEXT]},
        {**CHANGED, "include/llama.h": "struct llama;\nvoid skip();\n"},
    ],
    ids=["a line changed", "a hunk dropped", "a hunk added", "a file dropped", "a file added"],
)
def test_an_edited_patch_replaces_the_old_one(
    edited: dict[str, str], script: ModuleType, prepare: Prepare, tmp_path: Path
) -> None:
    prepare()
    script.PATCHES[0].write_text(diff(edited), encoding="utf-8")
    assert prepare() == 0
    assert tree(tmp_path / "dest" / "llama.cpp") == {**SOURCE, **edited}
    settled = settle(tmp_path / "dest" / "llama.cpp")
    assert prepare() == 0
    assert ages(tmp_path / "dest" / "llama.cpp") == settled


def test_lines_at_the_end_of_a_file_can_be_taken_back(script: ModuleType, prepare: Prepare, tmp_path: Path) -> None:
    """There the text before the patch is still a part of the text after it."""
    appended = {**CHANGED, "include/llama.h": "struct llama;\nvoid skip();\n"}
    script.PATCHES[0].write_text(diff(appended), encoding="utf-8")
    assert prepare() == 0
    script.PATCHES[0].write_text(diff(CHANGED), encoding="utf-8")
    assert prepare() == 0
    assert tree(tmp_path / "dest" / "llama.cpp") == PATCHED


def test_an_edited_patch_touches_only_the_files_that_it_changes(
    script: ModuleType, prepare: Prepare, tmp_path: Path
) -> None:
    prepare()
    before = settle(tmp_path / "dest" / "llama.cpp")
    edited = {**CHANGED, GRAPH: insert(SOURCE[GRAPH], _5="    if (skips(il)) {")}
    script.PATCHES[0].write_text(diff(edited), encoding="utf-8")
    assert prepare() == 0
    after = ages(tmp_path / "dest" / "llama.cpp")
    assert {name for name in after if after[name] != before[name]} == {GRAPH}


@pytest.mark.parametrize("case", OTHER)
def test_a_source_that_is_not_the_pinned_one_is_refused_with_hunk_file_and_remedy(
    case: str, script: ModuleType, prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, message = OTHER[case]
    archive = archive_of({**SOURCE, GRAPH: text}, tmp_path / "cache" / "sources" / script.SDIST)
    script.SHA256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    for _ in range(2):  # a failed run does not make the next one think that all is well
        assert prepare() == 1
        assert_refused(capsys.readouterr(), message, GRAPH, "use that version, or regenerate the patch")
        assert tree(tmp_path / "dest" / "llama.cpp") == {**SOURCE, GRAPH: text}  # not even the file that would fit
        assert not (tmp_path / "dest" / "applied.patch").exists()
        assert not (tmp_path / "dest" / "origin").exists()


def test_a_source_that_lacks_a_file_is_refused_by_its_name(
    script: ModuleType, prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = {name: text for name, text in SOURCE.items() if name != CONTEXT}
    archive = archive_of(rest, tmp_path / "cache" / "sources" / script.SDIST)
    script.SHA256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert prepare() == 1
    assert_refused(capsys.readouterr(), f"has no {CONTEXT}: it is not llama.cpp {script.COMMIT}")
    assert tree(tmp_path / "dest" / "llama.cpp") == rest


def test_a_patch_with_a_removal_is_refused(
    script: ModuleType, prepare: Prepare, capsys: pytest.CaptureFixture[str]
) -> None:
    removing = {**CHANGED, GRAPH: SOURCE[GRAPH].replace("graph line 20\n", "")}
    script.PATCHES[0].write_text(diff(removing), encoding="utf-8")
    assert prepare() == 1
    assert_refused(capsys.readouterr(), "layer-skip.patch removes a line ('-graph line 20'); it must only insert")


@pytest.mark.parametrize("what", ["removes", "fits nowhere"])
def test_an_edited_patch_that_is_refused_leaves_the_old_one_in_place(
    what: str, script: ModuleType, prepare: Prepare, tmp_path: Path
) -> None:
    prepare()
    patch = diff({**CHANGED, GRAPH: SOURCE[GRAPH].replace("graph line 20\n", "")})
    script.PATCHES[0].write_text(
        patch if what == "removes" else diff(CHANGED).replace(" graph line 6", " graph line 6b"), encoding="utf-8"
    )
    assert prepare() == 1
    assert tree(tmp_path / "dest" / "llama.cpp") == PATCHED


#
# fetch
#


@pytest.fixture
def pip(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A pip that delivers `content` (None: nothing) with `status`; the cache is empty."""
    good = (tmp_path / "cache" / "sources" / script.SDIST).read_bytes()
    (tmp_path / "cache" / "sources" / script.SDIST).unlink()
    fake = SimpleNamespace(content=good, status=0, calls=[])

    def run(command: list[str], *, env: dict[str, str], check: bool) -> SimpleNamespace:
        fake.calls.append(command)
        assert env["CMAKE_ARGS"] == "-DLLAMA_BUILD=OFF"
        if fake.content is not None:
            (Path(command[command.index("--dest") + 1]) / script.SDIST).write_bytes(fake.content)
        return SimpleNamespace(returncode=fake.status)

    monkeypatch.setattr(subprocess, "run", run)
    return fake


def cached(tmp_path: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (tmp_path / "cache" / "sources").rglob("*") if path.is_file()}


def test_the_source_is_downloaded_once_in_its_pinned_version(
    pip: SimpleNamespace, script: ModuleType, prepare: Prepare, tmp_path: Path
) -> None:
    assert prepare() == 0
    assert prepare() == 0
    (command,) = pip.calls
    assert f"llama-cpp-python=={script.VERSION}" in command
    assert {"--no-deps", "--no-binary"} <= set(command)
    assert cached(tmp_path) == {script.SDIST: pip.content}


def test_a_source_of_the_wrong_sha_256_is_refused_and_not_kept(
    pip: SimpleNamespace, prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pip.content += b"x"
    assert prepare() == 1
    err = capsys.readouterr().err.splitlines()[-1]
    assert f"has SHA-256 {hashlib.sha256(pip.content).hexdigest()}, expected" in err
    assert "the download is not the pinned one" in err
    assert cached(tmp_path) == {}
    assert not (tmp_path / "dest").exists()


@pytest.mark.parametrize(("content", "status"), [(None, 1), (None, 0), (b"half", 1)])
def test_a_download_that_fails_says_what_to_do_and_keeps_nothing(
    content: bytes | None,
    status: int,
    pip: SimpleNamespace,
    prepare: Prepare,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pip.content, pip.status = content, status
    assert prepare() == 1
    err = capsys.readouterr().err.splitlines()[-1]
    assert "check the network, or put the file into" in err
    assert str(tmp_path / "cache" / "sources") in err
    assert cached(tmp_path) == {}


def test_a_damaged_file_in_the_cache_is_downloaded_again(
    pip: SimpleNamespace, script: ModuleType, prepare: Prepare, tmp_path: Path
) -> None:
    (tmp_path / "cache" / "sources" / script.SDIST).write_bytes(b"half")
    assert prepare() == 0
    assert len(pip.calls) == 1
    assert cached(tmp_path) == {script.SDIST: pip.content}


def test_an_unpacking_that_was_cut_short_is_done_again(
    script: ModuleType, prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = os.utime, 0

    def interrupted(*args: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("no space left on device")
        original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "utime", interrupted)
    assert prepare() == 1
    assert not (tmp_path / "dest").exists()
    assert prepare() == 0
    assert tree(tmp_path / "dest" / "llama.cpp") == PATCHED
    assert not (tmp_path / "dest.partial").exists()
