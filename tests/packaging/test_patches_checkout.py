"""patches/llama_cpp.py for who changes llama.cpp: a checkout as the source, and regenerating the patch."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import patching
import pytest
from patching import (
    CHANGED,
    CONTEXT,
    GRAPH,
    OTHER,
    PATCHED,
    SOURCE,
    Prepare,
    ages,
    assert_refused,
    checkout,
    diff,
    settle,
    tree,
)

prepare, script = patching.prepare, patching.script


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
    text = script.PATCHES[0].read_text(encoding="utf-8")
    script.PATCHES[0].unlink()
    assert script.main(["regenerate", str(tmp_path / "dest")]) == 0
    assert script.PATCHES[0].read_text(encoding="utf-8") == text


def test_regenerate_writes_what_was_inserted_by_hand(
    script: ModuleType, prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare()
    edited = {**CHANGED, "include/llama.h": "struct llama;\nvoid skip();\n"}
    (tmp_path / "dest" / "llama.cpp" / "include" / "llama.h").write_text(edited["include/llama.h"], encoding="utf-8")
    assert script.main(["regenerate", str(tmp_path / "dest")]) == 0
    assert script.PATCHES[0].read_text(encoding="utf-8") == diff(edited)
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
    assert script.PATCHES[0].read_text(encoding="utf-8") == diff(CHANGED)


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
    assert_refused(capsys.readouterr(), "equals the pristine source; there is nothing to write")
    assert script.PATCHES[0].read_text(encoding="utf-8") == diff(CHANGED)


def test_each_patch_keeps_the_changes_of_its_own_files(
    script: ModuleType,
    prepare: Prepare,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = tmp_path / "first.patch", tmp_path / "second.patch"
    first.write_text(diff({GRAPH: CHANGED[GRAPH]}), encoding="utf-8")
    second.write_text(diff({CONTEXT: CHANGED[CONTEXT]}), encoding="utf-8")
    monkeypatch.setattr(script, "PATCHES", (first, second))
    assert prepare() == 0
    assert tree(tmp_path / "dest" / "llama.cpp") == PATCHED
    edited = {GRAPH: CHANGED[GRAPH], "src/other.cpp": "int other;\nint more;\n"}
    (tmp_path / "dest" / "llama.cpp" / "src" / "other.cpp").write_text(edited["src/other.cpp"], encoding="utf-8")
    assert script.main(["regenerate", str(tmp_path / "dest")]) == 0
    assert first.read_text(encoding="utf-8") == diff(edited)
    assert second.read_text(encoding="utf-8") == diff({CONTEXT: CHANGED[CONTEXT]})
    assert capsys.readouterr().out.splitlines()[1:] == [
        "wrote first.patch: 3 lines inserted",
        "wrote second.patch: 2 lines inserted",
    ]
    other = checkout(tmp_path, **{CONTEXT: SOURCE[CONTEXT].replace("line 12\n", "line 12b\n")})
    assert prepare("--source", other) == 1
    assert_refused(capsys.readouterr(), "hunk 1 of second.patch matches 0 places", CONTEXT)
