"""`via-sd-local doctor`, what a missing library says, and `via-sd-local models`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import commands
import pytest
from commands import Run, assert_refused
from huggingface_hub import constants

from via_sd_local import binding, cli
from via_sd_local.cli import doctor, installation

files, run = commands.files, commands.run


#
# doctor
#

VERDICTS = (
    "works; used",
    "not announced",
    "announced, but the kernel refuses it; built without it",
    "announced, but it faults; built without it",
    "not an x86 processor",
    "left out of a portable build",
    "not probed: not a native build",
    "not probed: the probe does not compile",
)


def test_doctor_reports_this_installation(run: Run) -> None:
    result = run("doctor", "--json")
    assert (result.status, result.err) == (0, "")
    report = json.loads(result.out)
    assert set(report) == {
        *("version", "python", "platform", "cpus", "packages", "problems"),
        *("build", "library", "patched", "cpu_features", "devices", "models"),
    }
    assert report["problems"] == []
    assert report["patched"] is True
    assert Path(report["library"]).is_file()
    assert report["build"]["amx"] in VERDICTS
    assert report["cpus"] == os.cpu_count()
    assert all(report["packages"].values())
    assert report["cpu_features"]
    assert not any(mark in feature for feature in report["cpu_features"] for mark in "|: ")


def test_the_known_amx_verdicts_are_those_of_the_build() -> None:
    text = (Path(__file__).parents[2] / "native" / "amx.cmake").read_text(encoding="utf-8")
    assert {line.split('"')[1] for line in text.splitlines() if "set(AMX_VERDICT" in line} == set(VERDICTS)


def test_doctor_says_the_same_for_people(run: Run) -> None:
    report = json.loads(run("doctor", "--json").out)
    result = run("doctor")
    assert (result.status, result.err) == (0, "")
    names = [line.split("  ")[0] for line in result.out.splitlines()]
    assert names[:7] == ["via_sd_local", "packages", "library", "llama.cpp", "layer masks", "backends", "device"]
    assert "AMX" in names
    for words in (report["version"], report["library"], report["build"]["amx"], report["build"]["llama_cpp_commit"]):
        assert words in result.out


def test_doctor_lists_the_models_that_are_here(
    run: Run, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path))
    assert json.loads(run("doctor", "--json").out)["models"] == []
    assert "none yet; `via-sd-local models pull smollm2-135m` fetches one" in run("doctor").out
    (tmp_path / "models").mkdir()
    own = tmp_path / "models" / "own.gguf"
    shutil.copy(files / "llama.gguf", own)
    assert json.loads(run("doctor", "--json").out)["models"] == [{"name": "own.gguf", "path": str(own)}]
    assert f"own.gguf: {own}" in run("doctor").out


def test_doctor_lists_what_it_can_compute_on(run: Run) -> None:
    devices = json.loads(run("doctor", "--json").out)["devices"]
    cpu = next(device for device in devices if device["name"] == "CPU")
    assert cpu["kind"] == "CPU"
    assert 0 < cpu["free"] <= cpu["total"]
    assert f"CPU (CPU): {cpu['description']}, " in run("doctor").out
    gpu = {"name": "CUDA0", "kind": "GPU", "description": "Some GPU", "free": 3 << 30, "total": 4 << 30}
    assert doctor.device_line(gpu) == "CUDA0 (GPU): Some GPU, 3.0 of 4.0 GiB free"
    assert doctor.device_line(gpu | {"free": 0, "total": 0}) == "CUDA0 (GPU): Some GPU"


def test_cpu_features_are_those_that_are_on() -> None:
    assert installation.cpu_features("CPU : SSE3 = 1 | AVX = 0 | SVE_CNT = 4 | REPACK = 1 | ") == [
        *("SSE3", "SVE_CNT=4", "REPACK")
    ]


def test_doctor_without_the_library_names_the_problem_and_exits_with_1(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("via_sd_local.binding")
    monkeypatch.setitem(sys.modules, "via_sd_local.binding", None)
    result = run("doctor", "--json")
    report = json.loads(result.out)
    assert result.status == 1
    assert len(report["problems"]) == 1
    assert result.err == f"error: {report['problems'][0]}\n"
    assert not {"build", "library", "patched", "devices"} & set(report)
    assert run("doctor").out.splitlines()[-1].startswith("packages")


WITHOUT_LIBRARY = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
sys.path.insert(0, sys.argv[1])
from via_sd_local import cli
assert cli.__file__.startswith(sys.argv[1])
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    "arguments", [("doctor",), ("doctor", "--json"), ("complete", "--verifier", "smollm2-135m", "--prompt", "x")]
)
def test_a_checkout_that_is_not_built_says_how_to_build_it(arguments: tuple[str, ...], tmp_path: Path) -> None:
    package = Path(cli.__file__).parent.parent
    shutil.copytree(package, tmp_path / "via_sd_local", ignore=shutil.ignore_patterns("lib", "_vendor", "__pycache__"))
    shutil.copytree(package.parent / "models", tmp_path / "models")
    command = [sys.executable, "-c", WITHOUT_LIBRARY, str(tmp_path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "has no built llama.cpp; run `make install`" in done.stderr
    if arguments[0] == "doctor":
        assert done.stdout
    else:
        assert done.stdout == ""


def test_a_library_without_the_patch_is_refused_with_the_remedy() -> None:
    with pytest.raises(ImportError, match=r"has no llama_no_such_function: it is not the patched .* `make install`"):
        binding.declare(binding._lib, "llama_no_such_function", [], None)


#
# models
#


def test_models_list_names_the_catalogue_and_what_is_here(run: Run, smollm2_path: Path) -> None:
    result = run("models", "list", "--json")
    assert (result.status, result.err) == (0, "")
    rows = {row["name"]: row for row in json.loads(result.out)}
    assert {"smollm2-135m", "gemma-3-270m"} <= set(rows)
    assert all(set(row) == {"name", "description", "license", "size", "path"} for row in rows.values())
    assert rows["smollm2-135m"]["path"] == str(smollm2_path)
    assert rows["smollm2-135m"]["size"] == smollm2_path.stat().st_size
    lines = run("models", "list").out.splitlines()
    assert lines[0].startswith("    98 MB  here   smollm2-135m")
    assert "here   in the models folder (`models list --json` shows the paths)" in lines
    assert all(len(line) <= 80 for line in lines)


def test_models_list_tells_what_is_not_here(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path))
    assert {row["path"] for row in json.loads(run("models", "list", "--json").out)} == {None}
    lines = run("models", "list").out.splitlines()
    assert [line.split()[2] for line in lines if " MB " in line] == ["pull", "pull", "build"]
    assert lines[-2:] == [
        "pull   not on this machine; `via-sd-local models pull NAME` fetches it",
        "build  not on this machine; `via-sd-local testbed build` makes it",
    ]


def test_models_list_and_rm_know_the_models_folder_and_the_hubs_cache(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    blob = tmp_path / "hub" / "models--owner--toys" / "blobs" / "0"
    places = [blob.parents[1] / "snapshots" / commit for commit in ("a" * 40, "b" * 40)]
    for folder in (blob.parent, *places, blob.parents[1] / "refs", tmp_path / "home" / "models"):
        folder.mkdir(parents=True)
    blob.write_bytes(b"1234")
    for place in places:
        (place / "toy.gguf").symlink_to(blob)
    for ref, place in zip(("main", "v2"), places, strict=True):
        (blob.parents[1] / "refs" / ref).write_text(place.name)
    mine = tmp_path / "home" / "models" / "mine.gguf"
    mine.write_bytes(b"12345678")
    rows = {row["name"]: (row["size"], row["path"]) for row in json.loads(run("models", "list", "--json").out)}
    assert rows["hf:owner/toys"] == (4, str(places[0] / "toy.gguf"))
    assert rows["hf:owner/toys@v2"] == (4, str(places[1] / "toy.gguf"))
    assert rows["mine.gguf"] == (8, str(mine))

    removed = run("models", "rm", "mine.gguf", "--json").json
    assert removed == {"name": "mine.gguf", "path": str(mine), "size": 8}
    assert run("models", "rm", "hf:owner/toys").out == f"removed {places[0] / 'toy.gguf'} (0 MB)\n"
    assert (places[1] / "toy.gguf").read_bytes() == b"1234"  # another revision has the same content
    assert run("models", "rm", "hf:owner/toys@v2").status == 0
    assert not mine.exists()
    assert not blob.exists()
    assert_refused(run("models", "rm", "hf:owner/toys"), "hf:owner/toys is not in the hub cache; `via-sd-local models")
    assert_refused(run("models", "rm", "smollm2-135m"), "smollm2-135m is not on this machine")
    for other in ("/etc/passwd", "../mine.gguf", "llama3.2:1b"):
        assert_refused(run("models", "rm", other), "is none of the models that are kept here")


@pytest.mark.parametrize("options", [(), ("--quiet",)])
def test_pulling_a_model_that_is_here_prints_its_path_last(
    options: tuple[str, ...], run: Run, smollm2_path: Path
) -> None:
    result = run("models", "pull", "smollm2-135m", *options)
    assert result.status == 0
    assert result.out.splitlines()[-1] == str(smollm2_path)


def test_pulling_as_json_prints_one_object(run: Run, smollm2_path: Path) -> None:
    result = run("models", "pull", "smollm2-135m", "--json")
    assert result.json == {"name": "smollm2-135m", "path": str(smollm2_path)}


def test_progress_is_shown_unless_quiet_or_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bool]] = []

    def pull(name: str, *, progress: bool, verify: bool) -> Path:
        seen.append((progress, verify))
        return Path(name)

    monkeypatch.setattr("via_sd_local.catalog.puller.pull", pull)
    for options in ((), ("--quiet",), ("--json",), ("--verify",)):
        assert run("models", "pull", "x", *options).status == 0
    assert seen == [(True, False), (False, False), (False, False), (True, True)]


def test_an_unknown_name_suggests_the_close_one(run: Run) -> None:
    assert_refused(
        run("models", "pull", "smollm2-153m"), "no model is called 'smollm2-153m'; did you mean smollm2-135m?"
    )
