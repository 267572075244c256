"""A user without a home folder, such as a number without a name in a container."""

from __future__ import annotations

import pwd
from collections.abc import Iterator
from pathlib import Path

import commands
import pytest
from commands import PROMPT, Run, assert_refused, greedy

from via_sd_local import Llama
from via_sd_local.files import NO_FOLDER, cache_folder
from via_sd_local.profiles import store

files, run = commands.files, commands.run
folder = store.folder  # before the fixture of all tests replaces it


@pytest.fixture(autouse=True)
def homeless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profiles_folder: Path) -> Iterator[None]:
    def unknown(_number: int) -> object:
        raise KeyError("uid not found")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "VIA_SD_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(store, "folder", folder)
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []  # no folder that is called ~


def test_there_is_no_cache_folder_and_a_variable_sets_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == NO_FOLDER
    monkeypatch.setenv("VIA_SD_HOME", "~/x")
    assert cache_folder() == NO_FOLDER
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path))
    assert cache_folder() == tmp_path


def test_a_model_that_is_given_by_path_answers(run: Run, files: Path) -> None:
    path = files / "llama.gguf"
    options = ("--verifier", path, "--drafter", "lookup", "--max-tokens", 6, "--threads", 1, "--n-ctx", 512)
    result = run("complete", PROMPT, *options, "--json").json
    assert result["text"] == greedy(path, PROMPT, 6)[1]
    llm = Llama(str(path), drafter="lookup", n_ctx=512, n_threads=1, verbose=False)
    try:
        assert llm(PROMPT, max_tokens=6, temperature=0)["usage"]["completion_tokens"] == 6
    finally:
        llm.close()


@pytest.mark.parametrize(
    "arguments",
    [("models", "list"), ("models", "pull", "smollm2-135m"), ("complete", "x"), ("calibrate", "--verifier", "{}")],
)
def test_what_needs_a_folder_names_the_variable_in_one_line(arguments: tuple[str, ...], run: Run, files: Path) -> None:
    given = (argument.replace("{}", str(files / "llama.gguf")) for argument in arguments)
    assert_refused(run(*given), "no home folder (HOME) to keep files in: set VIA_SD_HOME to a folder")


def test_doctor_reports_it_as_the_only_problem(run: Run) -> None:
    result = run("doctor")
    assert result.status == 1
    assert "set VIA_SD_HOME to a folder" in result.err
    assert result.err.count("\n") == 1
