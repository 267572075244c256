"""The profile's file: it reads back as it was, refuses what it is not, and is never half."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import profiles_made
import pytest

from via_sd_local.engine.gate import ConfidenceRule, JointRule
from via_sd_local.errors import ModelError
from via_sd_local.profiles.profile import dump, load, parse, write


def test_it_reads_back_as_it_was_written(tmp_path: Path) -> None:
    for changes in ({}, {"draft": None, "delta": None, "search": None, "levels": (), "notes": ("a", "b")}):
        path = profiles_made.put(tmp_path, "x.json", **changes)
        assert load(path) == profiles_made.make(**changes)


def test_the_file_is_for_people_too(tmp_path: Path) -> None:
    text = dump(profiles_made.make())
    assert '"mask": "2-3"' in text
    assert '"rule": "joint:0.6,0.7"' in text
    assert text.endswith("}\n")


def remove(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.pop(key)


def put(value: Any, *keys: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: Any) -> None:
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return change


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "no version": (remove("version"), r"not a profile: its version is None; correct it, remove it, or calibrate"),
    "version of text": (put("1", "version"), "its version is '1'"),
    "true": (put(True, "version"), "its version is True"),
    "newer": (put(2, "version"), "a profile of version 2, and this via-sd-local reads version 1; update via-sd-local"),
    "older": (put(0, "version"), "a profile of version 0, and this via-sd-local reads version 1; calibrate again"),
    "missing field": (remove("levels"), "x: levels is missing; correct it, remove it, or calibrate again"),
    "missing inside": (lambda data: data["verifier"].pop("hash"), r"verifier\.hash is missing"),
    "unknown field": (put(1, "speeds", "fast"), r"speeds\.fast is 1, not known; the fields here are plain, sd, exact"),
    "text for number": (put("7", "speeds", "plain"), r"speeds\.plain is '7', not a number"),
    "float for count": (put(1.5, "texts", "prompts"), r"texts\.prompts is 1\.5, not an integer"),
    "true for count": (put(True, "texts", "prompts"), r"texts\.prompts is True, not an integer"),
    "nan": (put(float("nan"), "speeds", "plain"), r"speeds\.plain is nan, not a number"),
    "null": (put(None, "mask"), "mask is None, not a text"),
    "list for object": (put([], "verifier"), r"verifier is \[\], not an object"),
    "object for list": (put({}, "levels"), r"levels is \{\}, not a list"),
    "in a list": (put(3, "levels", 2), r"levels\[2\] is 3, not an object"),
    "deep": (put("x", "levels", 2, "rules", "joint", "tokens"), r"levels\[2\]\.rules\.joint\.tokens is 'x', not an"),
    "no mask": (put("2-9", "mask"), "mask: mask item '2-9' names layer 9; the model's layers are 0 to 5"),
    "no rule": (put("best:1,1", "levels", 1, "rules", "joint", "rule"), r"rules\.joint: thresholds 'best:1,1' are not"),
    "other rule": (
        put("ratio:0.7,0.3", "levels", 1, "rules", "joint", "rule"),
        r"levels\[1\]: rules\.joint\.rule is 'ratio:0\.7,0\.3'; that is another rule",
    ),
    "share": (put(1.5, "agreement", "p-q", "share"), r"agreement\.p-q: share is 1\.5; it must be a share from 0 to 1"),
    "deviations": (put(700, "levels", 1, "rules", "joint", "deviations"), "deviations is 700; it is from 0 to tokens"),
    "lenient": (put(-1, "levels", 1, "rules", "joint", "lenient"), "lenient is -1; it is from 0 to tokens"),
    "mode": (put("fast", "levels", 1, "mode"), r"levels\[1\]: mode is 'fast'; it is one of plain, sd, exact, tiered"),
    "tiered lossless": (put("tiered", "lossless"), "lossless is 'tiered'; it is one of plain, sd, exact"),
    "tiered without rule": (put("tiered", "levels", 0, "mode"), "mode is 'tiered', but no rule has thresholds"),
    "broken promise": (
        put(0.03, "levels", 1, "rules", "joint", "bound"),
        r"levels\[1\]: rules\.joint\.bound is 0\.03; that is more than 0\.02",
    ),
    "level twice": (put(0.1, "levels", 2, "max_deviation"), "levels are not in the order of max_deviation, each once"),
    "no slim tier": (put("none", "mask"), "mask is none, but there are levels in mode tiered"),
    "no exact": (
        lambda data: data.update(lossless="exact", speeds=data["speeds"] | {"exact": None, "exact_rule": None}),
        "lossless is 'exact', but speeds.exact is not known",
    ),
    "no costs": (put({}, "costs", 0, "seconds", "full"), r"costs\[0\]: seconds has no full passes"),
    "order": (lambda data: data["levels"].reverse(), "levels are not in the order of max_deviation"),
    "cost": (put(-1.0, "costs", 0, "seconds", "full", "1"), r"costs\[0\]: seconds\.full\.1 is -1\.0; it must be above"),
    "cost size": (put(1.0, "costs", 0, "seconds", "full", "two"), "seconds.full has an entry for 'two'"),
    "threads": (put(0, "costs", 0, "threads"), r"costs\[0\]: threads is 0; it must be above 0"),
    "half": (put(None, "speeds", "exact_rule"), "exact and exact_rule are given both, or neither"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_named_with_the_remedy(case: str) -> None:
    change, message = BROKEN[case]
    data = json.loads(dump(profiles_made.make()))
    change(data)
    with pytest.raises(ModelError, match=message) as caught:
        parse(data, "x")
    assert str(caught.value).startswith("x: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a profile"),
        (b'{"version": 1', "not a profile"),
        (b"\xff\xfe", "not a profile"),
        (b"[" * 100_000, "not a profile"),
        (b"[1, 2]", "its version is None"),
        (b"null", "its version is None"),
    ],
)
def test_a_file_that_is_no_profile_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_every_truncation_of_a_profile_is_refused(tmp_path: Path) -> None:
    text = dump(profiles_made.make()).encode()
    path = tmp_path / "x.json"
    for length in range(0, len(text) - 2, 37):
        path.write_bytes(text[:length])
        with pytest.raises(ModelError, match=r"not a profile"):
            load(path)


def test_an_absent_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent\.json: cannot be read: No such file"):
        load(tmp_path / "absent.json")


def test_a_full_disk_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    write("old", path)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write("new", path)
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]
    assert path.read_text() == "old"


def test_a_kill_before_the_last_step_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    write("old", path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write("new", path)
    assert path.read_text() == "old"


def test_a_level_is_the_largest_within_the_budget_and_a_rule_may_come_from_a_smaller_one() -> None:
    profile = profiles_made.make()
    found = {budget: profile.level(budget) for budget in (0.0, 0.009, 0.01, 0.049, 0.05, 0.07, 1.0)}
    assert {budget: level and level.max_deviation for budget, level in found.items()} == {
        0.0: None,
        0.009: None,
        0.01: 0.01,
        0.049: 0.02,
        0.05: 0.05,
        0.07: 0.05,
        1.0: 0.1,
    }
    assert profile.rule(0.01) is None
    assert profile.rule(0.02) == JointRule(0.9, 0.9)
    assert profile.rule(0.1) == ConfidenceRule(0.5, 0.3)
    without = profiles_made.make(levels=(*profiles_made.LEVELS[:3], profiles_made.level(0.1, "sd", None)))
    assert without.rule(0.1) == JointRule(0.6, 0.7)


def test_costs_are_those_of_the_same_machine_and_threads_only() -> None:
    profile = profiles_made.make()
    costs = profile.costs_on("a machine", 1)
    assert costs is not None
    assert costs.of("full", 4) == 0.011
    assert profile.costs_on("a machine", 2) is None
    assert profile.costs_on("another machine", 1) is None
