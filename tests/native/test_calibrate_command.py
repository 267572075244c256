"""`via-sd-local calibrate` on a tiny model: what it writes, and what survives kills, full disks and closed folders."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
import pytest
from commands import Result, Run, assert_refused

from via_sd_local.calibration import thresholds
from via_sd_local.calibration.dimr.evaluation import Evaluator
from via_sd_local.calibration.dimr.objective import Score
from via_sd_local.calibration.recording import Recording
from via_sd_local.calibration.stages import answers, comparison, costs, recordings
from via_sd_local.calibration.work import Work
from via_sd_local.mask import LayerMask
from via_sd_local.profiles import profile
from via_sd_local.profiles import store as profiles
from via_sd_local.runtime.fingerprint import Fingerprint

files, run = commands.files, commands.run
PROMPTS = "the sea\n\nthe sky\n\nof the sea\n\nand the sky\n"
PNG = b"\x89PNG"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(costs, "ROUND_SECONDS", 1.0)
    monkeypatch.setattr(costs, "ROUNDS", 1)
    grid = comparison.Grid(candidates=lambda kind: thresholds.candidates(kind)[::9])
    monkeypatch.setattr(comparison, "Grid", lambda: grid)


@pytest.fixture
def calibrate(run: Run, files: Path, tmp_path: Path) -> Callable[..., Result]:
    """`calibrate("--mask", "2-3")` of llama.gguf with the draft template.gguf; later options override."""
    text = tmp_path / "prompts.txt"
    text.write_text(PROMPTS, encoding="utf-8")
    pair = ("--verifier", files / "llama.gguf", "--draft", files / "template.gguf", "--threads", 1)

    def call(*options: object) -> Result:
        return run("calibrate", *pair, "--text", text, "--answer-tokens", 12, *options)

    return call


def work_files(home: Path) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in (home / "calibration").glob("*/*"))


def test_the_profile_and_its_pictures_are_where_other_commands_look_for_them(
    calibrate: Callable[..., Result], run: Run, files: Path, profiles_folder: Path
) -> None:
    result = calibrate("--mask", "2-3")
    assert result.status == 0
    path = profiles_folder / "llama+template.json"
    assert result.out.splitlines()[-1] == f"profile: {path}"
    made = profile.load(path)
    assert made.verifier == Fingerprint.of(files / "llama.gguf")
    assert made.draft == Fingerprint.of(files / "template.gguf")
    assert (made.mask, made.search, made.texts.prompts) == ("2-3", None, 4)
    assert made.agreement["p-q"].share == 1.0  # the draft has the same weights
    assert made.agreement["p-q"].tokens == made.texts.held_out_tokens == 24
    assert made.agreement["q'-q"].share < 1.0
    assert set(made.costs[0].seconds) == {"draft", "full", "slim", "resume"}
    assert [level.max_deviation for level in made.levels] == [0.01, 0.02, 0.05, 0.10]
    assert made.levels[0].rules["joint"].why == "too little evidence: 22 tokens, and at least 408 are needed"
    for name in ("mask", "frontier"):
        assert path.with_name(f"llama+template.{name}.png").read_bytes().startswith(PNG)
    found = profiles.find(files / "llama.gguf", files / "template.gguf")
    assert found is not None
    assert (found.path, found.pair) == (path, True)
    shown = run("profiles", "show", "llama+template").out
    assert result.out.startswith(shown)


def test_json_is_one_object_with_profile_and_files(calibrate: Callable[..., Result], tmp_path: Path) -> None:
    output = tmp_path / "sub" / "my.json"
    got = calibrate("--mask", "2-3", "--json", "--quiet", "--output", output).json
    assert got["path"] == str(output)
    assert [Path(picture).name for picture in got["pictures"]] == ["my.mask.png", "my.frontier.png"]
    assert got["profile"] == json.loads(output.read_text(encoding="utf-8"))


def test_without_a_draft_model_the_mask_is_all_there_is(run: Run, files: Path, tmp_path: Path) -> None:
    text = tmp_path / "prompts.txt"
    text.write_text(PROMPTS, encoding="utf-8")
    options = ("--mask", "2", "--text", text, "--answer-tokens", 8, "--threads", 1)
    result = run("calibrate", "--verifier", files / "llama.gguf", *options)
    assert result.status == 0
    assert "Without a draft model, only the mask was searched for" in result.out
    made = profile.load(profiles.folder() / "llama.json")
    assert (made.draft, made.delta, made.levels, made.speeds.sd) == (None, None, (), None)
    assert set(made.agreement) == {"q'-q"}


def test_without_matplotlib_there_are_no_pictures_and_a_word(
    calibrate: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, profiles_folder: Path
) -> None:
    monkeypatch.setitem(sys.modules, "via_sd_local.calibration.pictures", None)
    result = calibrate("--mask", "2-3", "--quiet")
    assert result.status == 0
    assert "(no pictures: they need matplotlib; pip install 'via-sd-local[pictures]')" in result.err
    assert [path.name for path in profiles_folder.iterdir()] == ["llama+template.json"]


def test_a_second_run_takes_answers_and_recording_from_the_first(
    calibrate: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert calibrate("--mask", "2-3").status == 0
    assert work_files(tmp_path / "home") == [".lock", "answers.json", "recording"]

    def never(*_: object, **__: object) -> None:
        raise AssertionError("done before")

    monkeypatch.setattr(answers, "answers", never)
    monkeypatch.setattr(recordings, "record", never)
    assert calibrate("--mask", "2-3", "--resume").status == 0
    with pytest.raises(AssertionError, match="done before"):
        calibrate("--mask", "2-3", "--fresh", "--quiet")
    assert_refused(calibrate("--mask", "2-3", "--resume", "--answer-tokens", 9), "there is nothing to resume")


def test_an_interruption_between_two_answers_loses_none(
    calibrate: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, asked = answers.answers, []

    def interrupted(verifier: Any, prompts: Any, most: int) -> Any:
        asked.extend(prompts)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return original(verifier, prompts, most)

    monkeypatch.setattr(answers, "answers", interrupted)
    assert calibrate("--mask", "2-3").status == 130
    assert calibrate("--mask", "2-3").status == 0
    assert len(asked) == 3 + 2
    assert asked[2] == asked[3]


@pytest.mark.parametrize("name", ["answers.json", "recording"])
@pytest.mark.parametrize("damage", [b"", b"[", b"PK\x03\x04 no archive", b'[{"kind": 1}]'])
def test_damaged_work_is_done_again(
    name: str, damage: bytes, calibrate: Callable[..., Result], tmp_path: Path, profiles_folder: Path
) -> None:
    assert calibrate("--mask", "2-3").status == 0
    before = profile.load(profiles_folder / "llama+template.json")
    (path,) = (tmp_path / "home" / "calibration").glob(f"*/{name}*")
    path.write_bytes(damage)
    assert calibrate("--mask", "2-3").status == 0
    after = profile.load(profiles_folder / "llama+template.json")
    assert (after.agreement, after.delta) == (before.agreement, before.delta)


def test_a_folder_that_cannot_be_written_is_told_before_any_work(
    calibrate: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "touch", read_only)
    message = "llama+template.json cannot be written (Read-only file system); name another file (--output)"
    assert_refused(calibrate("--mask", "2-3"), message)
    monkeypatch.undo()
    assert_refused(calibrate("--mask", "2-3", "--output", tmp_path), "cannot be written (Is a directory)")
    assert not (tmp_path / "home" / "calibration").exists()


def test_a_disk_that_is_full_at_the_end_loses_no_profile(
    calibrate: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, profiles_folder: Path
) -> None:
    replace = os.replace

    def full(partial: Path, path: Path) -> None:
        if path.parent == profiles_folder:  # the folder of intermediate results has space
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(partial, path)

    monkeypatch.setattr(os, "replace", full)
    result = calibrate("--mask", "2-3", "--quiet")
    assert result.status == 1
    assert result.err.startswith("error: ")
    assert "(No space left on device); the profile is on standard output instead" in result.err
    assert profile.parse(json.loads(result.out), "x").mask == "2-3"
    assert list(profiles_folder.iterdir()) == []


def test_where_nothing_can_be_kept_the_run_goes_on_without(
    calibrate: Callable[..., Result], tmp_path: Path, profiles_folder: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "calibration").write_text("in the way")
    result = calibrate("--mask", "2-3", "--quiet")
    assert result.status == 0
    assert result.err.count("warning: nothing can be kept in") == 1
    assert "this run could not be resumed" in result.err
    assert (profiles_folder / "llama+template.json").is_file()


def test_two_runs_of_the_same_pair_do_not_mix(
    calibrate: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = answers.answers

    def nested(*arguments: Any) -> Any:
        monkeypatch.setattr(answers, "answers", original)
        assert_refused(calibrate("--mask", "2-3", "--quiet"), "another calibration of these models on this text is run")
        return original(*arguments)

    monkeypatch.setattr(answers, "answers", nested)
    assert calibrate("--mask", "2-3", "--quiet").status == 0


def test_a_picture_that_cannot_be_written_does_not_spoil_the_profile(
    calibrate: Callable[..., Result], profiles_folder: Path
) -> None:
    (profiles_folder / "llama+template.mask.png").mkdir(parents=True)
    result = calibrate("--mask", "2-3", "--quiet")
    assert result.status == 0
    assert "(no pictures: Is a directory)" in result.err
    assert (profiles_folder / "llama+template.json").is_file()
    assert not list(profiles_folder.glob(".*"))


def test_the_search_is_in_the_profile_and_has_a_picture(
    calibrate: Callable[..., Result], profiles_folder: Path
) -> None:
    result = calibrate("--evaluations", 16, "--quiet")
    assert result.status == 0, result.err
    made = profile.load(profiles_folder / "llama+template.json")
    assert made.search is not None
    assert (made.search.strategy, made.search.objective, made.search.evaluations) == ("guided", "kl", 16)
    assert made.search.complete
    assert made.mask in [point.mask for point in made.search.front]
    assert made.has_mask
    assert (profiles_folder / "llama+template.search.png").read_bytes().startswith(PNG)
    assert "strategy guided, objective kl, 16 masks in" in result.out


@pytest.mark.parametrize(("strategy", "objective"), [("guided", "kl"), ("paper", "relu"), ("random", "kl")])
def test_seed_and_evaluations_give_the_same_mask(
    strategy: str, objective: str, calibrate: Callable[..., Result], profiles_folder: Path
) -> None:
    options = ("--strategy", strategy, "--evaluations", 7, "--skip-ratio", 0.25, "--quiet")

    def searched(*more: object) -> tuple[str, Any]:
        assert calibrate(*options, *more).status == 0
        made = profile.load(profiles_folder / "llama+template.json")
        assert made.search is not None
        assert (made.search.strategy, made.search.objective) == (strategy, objective)
        return made.mask, made.search.front

    first = searched()
    assert searched("--fresh") == first
    assert {point.skip_ratio for point in first[1]} == {0.25}


def test_ctrl_c_ends_the_search_and_keeps_its_best(
    calibrate: Callable[..., Result], profiles_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, scored = Evaluator.score, []

    def interrupted(self: Evaluator, mask: LayerMask) -> Score:
        scored.append(mask)
        if len(scored) == 9:
            raise KeyboardInterrupt
        return original(self, mask)

    monkeypatch.setattr(Evaluator, "score", interrupted)
    path = profiles_folder / "llama+template.json"
    assert calibrate("--strategy", "random", "--evaluations", 12, "--quiet").status == 0
    made = profile.load(path)
    assert made.search is not None
    assert (made.search.evaluations, made.search.complete) == (8, False)
    assert made.notes == ("the search was cut short",)
    assert calibrate("--strategy", "random", "--evaluations", 12, "--quiet").status == 0
    made = profile.load(path)
    assert made.search is not None
    assert (made.search.evaluations, made.search.complete, made.notes) == (12, True, ())
    assert len(scored) == 9 + 4  # the eight that were logged are not done again
    assert scored[8] == scored[9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--mask", "9"), "mask item '9' names layer 9; the model's layers are 0 to 5"),
        (("--mask", "2", "--minutes", "3"), "a mask was given, so there is no search"),
        (("--minutes", "3", "--evaluations", "3"), "--minutes and --evaluations are two budgets; give one"),
        (("--minutes", "0"), "--minutes is 0.0; it must be above 0"),
        (("--evaluations", "0"), "--evaluations is 0; it must be at least 1"),
        (("--skip-ratio", "1"), "--skip-ratio is 1.0; it is a share of the sublayers between 0 and 1"),
        (("--answer-tokens", "1"), "--answer-tokens is 1; it must be at least 2"),
        (("--seed", "-1"), "--seed is -1; it must be at least 0"),
        (("--text", "absent.txt"), "absent.txt: the text cannot be read"),
        (("--verifier", "absent.gguf"), "absent.gguf does not exist"),
        (("--draft", "absent.gguf"), "absent.gguf does not exist"),
        (("--threads", "0", "--mask", "2"), "--threads is 0; it must be at least 1"),
    ],
)
def test_what_cannot_be_done_is_refused(
    options: tuple[str, ...], message: str, calibrate: Callable[..., Result]
) -> None:
    assert_refused(calibrate("--quiet", *options), message)


def test_models_that_cannot_be_calibrated_are_refused(calibrate: Callable[..., Result], files: Path) -> None:
    options = ("--mask", "2", "--quiet")
    assert_refused(
        calibrate(*options, "--verifier", files / "mamba.gguf"), "mamba.gguf cannot be calibrated: its state"
    )
    assert_refused(
        calibrate(*options, "--draft", files / "other.gguf"), "token 300 is 'xyz' in the draft and 'nd' in the"
    )


def test_a_killed_run_leaves_only_whole_files_and_goes_on(files: Path, tmp_path: Path) -> None:
    """SIGKILL at several moments; each time everything that is there can be read."""
    text = tmp_path / "prompts.txt"
    text.write_text("\n\n".join(f"the sea {i}" for i in range(8)), encoding="utf-8")
    home = tmp_path / "home"
    pair = ("--verifier", files / "llama.gguf", "--draft", files / "template.gguf", "--threads", 1)
    options = ("--text", text, "--answer-tokens", 16, "--mask", "2-3", "--output", tmp_path / "p.json", "--quiet")
    command = [str(part) for part in (commands.COMMAND, "calibrate", *pair, *options)]
    for wait in ("answers.json", "recording-*"):
        process = subprocess.Popen(command, env=os.environ | {"VIA_SD_HOME": str(home)}, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list(home.glob(f"calibration/*/{wait}")):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for path in home.glob("calibration/*/answers.json"):
            assert json.loads(path.read_text(encoding="utf-8"))
        for path in home.glob("calibration/*/recording-*"):
            assert len(Recording.load(path)) > 0
        assert not (tmp_path / "p.json").exists() or profile.load(tmp_path / "p.json")
    done = subprocess.run(command, env=os.environ | {"VIA_SD_HOME": str(home)}, capture_output=True, check=False)
    assert done.returncode == 0
    assert profile.load(tmp_path / "p.json").mask == "2-3"


def test_work_that_is_not_there_is_none(tmp_path: Path) -> None:
    work = Work(["a key"])
    assert not work.exists
    assert work.load_json("x.json") is None
    work.save_json("x.json", [1])
    assert work.exists
    assert Work(["a key"]).load_json("x.json") == [1]
    assert Work(["another"]).load_json("x.json") is None
    work.clear()
    assert not work.exists


def test_a_failing_write_leaves_what_was_there(tmp_path: Path) -> None:
    work = Work(["a key"])
    work.save_json("x.json", [1])

    def half(path: Path) -> None:
        path.write_text("[1, 2", encoding="utf-8")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.warns(RuntimeWarning, match=r"nothing can be kept in .*\(No space left on device\)"):
        work.save("x.json", half)
    assert work.load_json("x.json") == [1]
    assert [path.name for path in work.folder.iterdir()] == ["x.json"]


def test_a_real_model_is_calibrated_in_less_than_half_a_minute(run: Run, smollm2_path: Path, tmp_path: Path) -> None:
    """SmolLM2 drafts for itself, with a tiny budget; the slim tier of so small a model is not worth it."""
    text = tmp_path / "prompts.txt"
    text.write_text("Name three colours.\n\nWhat is two plus two?", encoding="utf-8")
    options = ("--text", text, "--answer-tokens", 12, "--evaluations", 8, "--threads", 1, "--quiet")
    result = run("calibrate", "--verifier", smollm2_path, "--draft", smollm2_path, *options)
    assert result.status == 0, result.err
    made = profile.load(profiles.folder() / "SmolLM2-135M-Instruct.Q4_1+SmolLM2-135M-Instruct.Q4_1.json")
    assert made.agreement["p-q"].share == 1.0
    assert made.agreement["q'-q"].share < 1.0
    assert made.verifier.n_layer == 30
    assert made.costs[0].threads == 1
    assert all(thresholds.rule is None for level in made.levels[:2] for thresholds in level.rules.values())
