"""patches/llama_cpp.py on a small source that looks like llama-cpp-python's: what it writes, and what it refuses."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import io
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

PATCHES = Path(__file__).parents[1] / "patches"
ROOT = "llama_cpp_python-0.3.36/"
GRAPH = "src/llama-graph.cpp"
CONTEXT = "src/llama-context.cpp"
SOURCE = {
    "CMakeLists.txt": "project(llama)\n",
    "LICENSE": "MIT\n",
    GRAPH: "".join(f"graph line {n}\n" for n in range(1, 41)),
    CONTEXT: "".join(f"context line {n}\n" for n in range(1, 31)),
    "src/other.cpp": "int other;\n",
    "include/llama.h": "struct llama;\n",
}
LEFT_OUT = {"README.md": "read me\n", "tools/main.cpp": "int main;\n", "srcs/x.cpp": "int x;\n"}


def insert(text: str, **lines: str) -> str:
    """The text with lines inserted: `_12="new"` goes after line 12."""
    rows = text.splitlines()
    for number, new in sorted(((int(key[1:]), new) for key, new in lines.items()), reverse=True):
        rows.insert(number, new)
    return "\n".join(rows) + "\n"


def diff(changed: dict[str, str]) -> str:
    text = ""
    for name, new in sorted(changed.items()):
        rows = [SOURCE[name].splitlines(keepends=True), new.splitlines(keepends=True)]
        text += "".join(difflib.unified_diff(*rows, f"a/{name}", f"b/{name}", n=4))
    return text


CHANGED = {
    GRAPH: insert(SOURCE[GRAPH], _5="    if (skips) {", _30="    skipped();"),
    CONTEXT: insert(SOURCE[CONTEXT], _10="", _11="    mask();"),
}
PATCHED = {**SOURCE, **CHANGED}


def archive_of(files: dict[str, str], path: Path) -> Path:
    """A source distribution with the given llama.cpp."""
    members = {f"{ROOT}vendor/llama.cpp/{name}": text for name, text in {**files, **LEFT_OUT}.items()}
    members |= {
        f"{ROOT}llama_cpp/__init__.py": "__version__ = 'x'\n",
        f"{ROOT}llama_cpp/server/app.py": "app = 1\n",
        f"{ROOT}LICENSE.md": "MIT\n",
        f"{ROOT}docs/index.md": "documents\n",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(text), 1_000_000_000
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder, by its relative name."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def ages(folder: Path) -> dict[str, int]:
    return {name: (folder / name).stat().st_mtime_ns for name in tree(folder)}


def settle(folder: Path) -> dict[str, int]:
    """Make every file old, so that a later write shows; returns `ages`."""
    for name in tree(folder):
        os.utime(folder / name, (1_000_000_000, 1_000_000_000))
    return ages(folder)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with the small archive in its cache, its own patch file, and no pip."""
    spec = importlib.util.spec_from_file_location("patches_llama_cpp", PATCHES / "llama_cpp.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path / "cache"))
    archive = archive_of(SOURCE, tmp_path / "cache" / "sources" / module.SDIST)
    monkeypatch.setattr(module, "SHA256", hashlib.sha256(archive.read_bytes()).hexdigest())
    patch = tmp_path / "layer-skip.patch"
    patch.write_text(diff(CHANGED), encoding="utf-8")
    monkeypatch.setattr(module, "PATCH", patch)

    def refuse(*_args: object, **_options: object) -> None:
        raise AssertionError("the tests use no network")

    monkeypatch.setattr(subprocess, "run", refuse)
    return module


@pytest.fixture
def prepare(script: ModuleType, tmp_path: Path) -> Callable[..., int]:
    """`prepare()` and `prepare("--source", D)` run the command on the folder `dest`; it returns the status."""
    return lambda *options: int(script.main(["prepare", str(tmp_path / "dest"), *map(str, options)]))


Prepare = Callable[..., int]


def checkout(tmp_path: Path, **changes: str) -> Path:
    """A llama.cpp checkout with what a build does not need, too."""
    folder = tmp_path / "checkout"
    for name, text in {**SOURCE, **LEFT_OUT, **changes}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


#
# the real patch
#


def test_the_real_patch_only_inserts() -> None:
    lines = (PATCHES / "layer-skip.patch").read_text(encoding="utf-8").splitlines()
    removed = [line for line in lines if line.startswith("-") and not line.startswith("--- a/")]
    assert removed == []
    assert sum(line.startswith("+") and not line.startswith("+++ b/") for line in lines) > 20
    assert {line[:1] for line in lines} == {"-", "+", "@", " "}


def test_the_real_patch_is_read_whole(script: ModuleType) -> None:
    text = (PATCHES / "layer-skip.patch").read_text(encoding="utf-8")
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
    script.PATCH.write_text(diff(edited), encoding="utf-8")
    assert prepare() == 0
    assert tree(tmp_path / "dest" / "llama.cpp") == {**SOURCE, **edited}
    settled = settle(tmp_path / "dest" / "llama.cpp")
    assert prepare() == 0
    assert ages(tmp_path / "dest" / "llama.cpp") == settled


def test_lines_at_the_end_of_a_file_can_be_taken_back(script: ModuleType, prepare: Prepare, tmp_path: Path) -> None:
    """There the text before the patch is still a part of the text after it."""
    appended = {**CHANGED, "include/llama.h": "struct llama;\nvoid skip();\n"}
    script.PATCH.write_text(diff(appended), encoding="utf-8")
    assert prepare() == 0
    script.PATCH.write_text(diff(CHANGED), encoding="utf-8")
    assert prepare() == 0
    assert tree(tmp_path / "dest" / "llama.cpp") == PATCHED


def test_an_edited_patch_touches_only_the_files_that_it_changes(
    script: ModuleType, prepare: Prepare, tmp_path: Path
) -> None:
    prepare()
    before = settle(tmp_path / "dest" / "llama.cpp")
    edited = {**CHANGED, GRAPH: insert(SOURCE[GRAPH], _5="    if (skips(il)) {")}
    script.PATCH.write_text(diff(edited), encoding="utf-8")
    assert prepare() == 0
    after = ages(tmp_path / "dest" / "llama.cpp")
    assert {name for name in after if after[name] != before[name]} == {GRAPH}


def assert_refused(captured: tuple[str, str], *words: str) -> None:
    out, err = captured
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


OTHER = {
    "a changed line": (SOURCE[GRAPH].replace("line 31\n", "line 31b\n"), "hunk 2 of layer-skip.patch matches 0 places"),
    "two places": (SOURCE[GRAPH] + SOURCE[GRAPH], "hunk 1 of layer-skip.patch matches 2 places"),
    "an empty file": ("", "hunk 1 of layer-skip.patch matches 0 places"),
}


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
    script.PATCH.write_text(diff(removing), encoding="utf-8")
    assert prepare() == 1
    assert_refused(capsys.readouterr(), "layer-skip.patch removes a line ('-graph line 20'); it must only insert")


@pytest.mark.parametrize("what", ["removes", "fits nowhere"])
def test_an_edited_patch_that_is_refused_leaves_the_old_one_in_place(
    what: str, script: ModuleType, prepare: Prepare, tmp_path: Path
) -> None:
    prepare()
    patch = diff({**CHANGED, GRAPH: SOURCE[GRAPH].replace("graph line 20\n", "")})
    script.PATCH.write_text(
        patch if what == "removes" else diff(CHANGED).replace(" graph line 6", " graph line 6b"), encoding="utf-8"
    )
    assert prepare() == 1
    assert tree(tmp_path / "dest" / "llama.cpp") == PATCHED


#
# prepare --source
#


def test_a_checkout_is_copied_patched_and_itself_left_alone(prepare: Prepare, tmp_path: Path) -> None:
    source = checkout(tmp_path)
    before, texts = settle(source), tree(source)
    assert prepare("--source", source) == 0
    assert (tree(source), ages(source)) == (texts, before)
    assert tree(tmp_path / "dest" / "llama.cpp") == PATCHED
    assert tree(tmp_path / "dest" / "llama_cpp")  # the Python side is always the pinned one
    settled = settle(tmp_path / "dest" / "llama.cpp")
    assert prepare("--source", source) == 0
    assert ages(tmp_path / "dest" / "llama.cpp") == settled


def test_a_change_in_a_checkout_reaches_the_copy_and_touches_no_other_file(prepare: Prepare, tmp_path: Path) -> None:
    source = checkout(tmp_path)
    prepare("--source", source)
    before = settle(tmp_path / "dest" / "llama.cpp")
    (source / "src" / "other.cpp").write_text("int changed;\n", encoding="utf-8")
    (source / GRAPH).write_text(SOURCE[GRAPH] + "one line more\n", encoding="utf-8")
    assert prepare("--source", source) == 0
    files, after = tree(tmp_path / "dest" / "llama.cpp"), ages(tmp_path / "dest" / "llama.cpp")
    assert files["src/other.cpp"] == "int changed;\n"
    assert files[GRAPH] == CHANGED[GRAPH] + "one line more\n"
    assert {name for name in after if after[name] != before[name]} == {"src/other.cpp", GRAPH}


def test_a_checkout_that_has_the_patch_already_is_accepted(prepare: Prepare, tmp_path: Path) -> None:
    assert prepare("--source", checkout(tmp_path, **CHANGED)) == 0
    assert tree(tmp_path / "dest" / "llama.cpp") == PATCHED


def test_going_from_a_checkout_to_the_pinned_source_and_back_leaves_nothing_behind(
    prepare: Prepare, tmp_path: Path
) -> None:
    source = checkout(tmp_path, **{"src/new.cpp": "int only_here;\n"})
    assert prepare("--source", source) == 0
    assert "src/new.cpp" in tree(tmp_path / "dest" / "llama.cpp")
    assert prepare() == 0
    assert tree(tmp_path / "dest" / "llama.cpp") == PATCHED
    assert prepare("--source", source) == 0
    assert tree(tmp_path / "dest" / "llama.cpp") == {**PATCHED, "src/new.cpp": "int only_here;\n"}


def test_a_file_that_a_checkout_no_longer_has_goes(prepare: Prepare, tmp_path: Path) -> None:
    source = checkout(tmp_path)
    prepare("--source", source)
    (source / "src" / "other.cpp").unlink()
    assert prepare("--source", source) == 0
    assert "src/other.cpp" not in tree(tmp_path / "dest" / "llama.cpp")


def test_a_checkout_that_does_not_fit_is_refused_and_not_copied(
    prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = checkout(tmp_path, **{GRAPH: OTHER["a changed line"][0]})
    before, texts = settle(source), tree(source)
    assert prepare("--source", source) == 1
    assert_refused(capsys.readouterr(), "hunk 2 of layer-skip.patch matches 0 places", GRAPH)
    assert (tree(source), ages(source)) == (texts, before)
    assert not (tmp_path / "dest" / "llama.cpp").exists()


def test_a_folder_that_is_no_checkout_is_refused(
    prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert prepare("--source", tmp_path / "empty") == 1
    assert_refused(capsys.readouterr(), str(tmp_path / "empty"), "is not a llama.cpp checkout")


def test_a_checkout_that_is_refused_leaves_a_good_source_in_place(prepare: Prepare, tmp_path: Path) -> None:
    prepare()
    assert prepare("--source", checkout(tmp_path, **{GRAPH: ""})) == 1
    assert tree(tmp_path / "dest" / "llama.cpp") == PATCHED


#
# regenerate
#


def test_regenerate_writes_the_same_patch_back(script: ModuleType, prepare: Prepare, tmp_path: Path) -> None:
    prepare()
    text = script.PATCH.read_text(encoding="utf-8")
    script.PATCH.unlink()
    assert script.main(["regenerate", str(tmp_path / "dest")]) == 0
    assert script.PATCH.read_text(encoding="utf-8") == text


def test_regenerate_writes_what_was_inserted_by_hand(
    script: ModuleType, prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare()
    edited = {**CHANGED, "include/llama.h": "struct llama;\nvoid skip();\n"}
    (tmp_path / "dest" / "llama.cpp" / "include" / "llama.h").write_text(edited["include/llama.h"], encoding="utf-8")
    assert script.main(["regenerate", str(tmp_path / "dest")]) == 0
    assert script.PATCH.read_text(encoding="utf-8") == diff(edited)
    assert "5 lines inserted" in capsys.readouterr().out
    before = settle(tmp_path / "dest" / "llama.cpp")
    assert prepare() == 0
    assert ages(tmp_path / "dest" / "llama.cpp") == before


def test_regenerate_refuses_removals_and_keeps_the_patch(
    script: ModuleType, prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare()
    capsys.readouterr()
    file = tmp_path / "dest" / "llama.cpp" / GRAPH
    file.write_text(CHANGED[GRAPH].replace("graph line 20\n", ""), encoding="utf-8")
    assert script.main(["regenerate", str(tmp_path / "dest")]) == 1
    assert_refused(capsys.readouterr(), "removes a line ('-graph line 20'); it must only insert")
    assert script.PATCH.read_text(encoding="utf-8") == diff(CHANGED)


def test_regenerate_refuses_the_removal_of_a_line_that_begins_with_two_dashes(
    script: ModuleType, prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = diff({GRAPH: SOURCE[GRAPH].replace("graph line 20\n", "")}).replace("-graph line 20", "--- graph line 20")
    with pytest.raises(script.SourceError, match="it must only insert"):
        script.hunks(patch)


def test_regenerate_of_an_unchanged_source_keeps_the_patch(
    script: ModuleType, prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare()
    capsys.readouterr()
    for name, text in SOURCE.items():
        (tmp_path / "dest" / "llama.cpp" / name).write_text(text, encoding="utf-8")
    assert script.main(["regenerate", str(tmp_path / "dest")]) == 1
    assert_refused(capsys.readouterr(), "equals the pristine source; nothing to write")
    assert script.PATCH.read_text(encoding="utf-8") == diff(CHANGED)


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
