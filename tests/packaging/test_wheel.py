"""The wheel works where there is no compiler and no checkout; the source distribution has all that a build needs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny

from via_sd_local.libraries import library_file

ROOT = Path(__file__).parents[2]
COMPILED = any((ROOT / "build").glob("*/CMakeCache.txt"))
LIBRARIES = ("llama", "ggml", "ggml-base", "via-sd-rows")

pytestmark = pytest.mark.skipif(not COMPILED, reason="no build folder here, and compiling llama.cpp takes minutes")


def build(kind: str, folder: Path) -> Path:
    """The one distribution of a kind that the build backend makes from this checkout, re-using what is compiled."""
    command = [sys.executable, "-m", "build", f"--{kind}", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment with the wheel; its dependencies are those of the tests' environment."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(folder, with_pip=False)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    python = programs / Path(sys.executable).name
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(command, capture_output=True, check=True)
    asked = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], **TEXT)
    # a folder that a .pth file names has its own .pth files ignored, so the checkout does not get in
    here = Path(pytest.__file__).parents[1]
    (Path(asked.stdout.strip()) / "dependencies.pth").write_text(f"{here}\n", encoding="utf-8")
    return programs


TEXT: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": 120}


@pytest.fixture
def command(installed: Path, tmp_path: Path) -> Callable[..., str]:
    """`command("via-sd-local", …)` runs a program of that environment with nothing else on PATH; returns its output."""

    def call(program: str, *arguments: object) -> str:
        kept = {name: os.environ[name] for name in ("SYSTEMROOT", "TMPDIR", "TEMP") if name in os.environ}
        environment = {**kept, "PATH": str(installed), "HOME": str(tmp_path), "VIA_SD_HOME": str(tmp_path / "cache")}
        words = [str(installed / program), *map(str, arguments)]
        done = subprocess.run(words, cwd=tmp_path, env=environment, **TEXT | {"check": False})
        assert done.returncode == 0, done.stderr
        out: str = done.stdout
        return out

    return call


def test_the_installed_wheel_finds_its_own_library_and_knows_this_machine(
    command: Callable[..., str], installed: Path
) -> None:
    report = json.loads(command("via-sd-local", "doctor", "--json"))
    assert report["problems"] == []
    assert report["patched"] is True
    assert Path(report["library"]).is_relative_to(installed.parent)
    assert "CPU" in [device["name"] for device in report["devices"]]
    checkout = json.loads((ROOT / "via_sd_local" / "lib" / "build.json").read_text(encoding="utf-8"))
    assert report["build"] == checkout


def test_the_installed_wheel_answers(command: Callable[..., str], tmp_path: Path) -> None:
    model = tiny.write(tmp_path / "m.gguf", tiny.spec("llama"))
    options = ("--verifier", model, "--drafter", "lookup", "--mask", "2-3", "--mode", "exact", "--draft-tokens", 3)
    out = command("via-sd-local", "complete", *options, "--prompt", "the sea", "--max-tokens", 8, "--json")
    assert json.loads(out)["usage"]["completion_tokens"] == 8
    assert json.loads(out)["stats"]["mode"] == "exact"


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no list of the loaded libraries here")
def test_every_library_of_the_installed_wheel_comes_from_the_wheel(
    command: Callable[..., str], installed: Path
) -> None:
    code = (
        "import numpy, via_sd_local.binding, via_sd_local; from via_sd_local.sampling.rows import sum_exp; "
        "sum_exp(numpy.zeros(4, numpy.float32), 0.0); print(open('/proc/self/maps').read(), via_sd_local.__file__)"
    )
    lines = command("python", "-c", code).splitlines()
    assert Path(lines[-1].split()[-1]).is_relative_to(installed.parent)
    ours = {Path(line.split()[-1]) for line in lines if re.search("lib(ggml|llama|via)", line)}
    assert {path.name for path in ours} >= {library_file(name) for name in LIBRARIES}
    assert all(path.is_relative_to(installed.parent) for path in ours)


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")
def test_run_paths_are_relative(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("via_sd_local/lib/") and ".json" not in name]
        assert {Path(name).name for name in names} >= {library_file(name) for name in LIBRARIES}
        for name in names:
            assert run_paths(archive.read(name)) in ([], ["$ORIGIN"]), name
        assert run_paths(archive.read(f"via_sd_local/lib/{library_file('llama')}")) == ["$ORIGIN"]


def run_paths(elf: bytes) -> list[str]:
    """DT_RPATH and DT_RUNPATH of a 64-bit ELF file."""
    import struct

    assert elf[:6] == b"\x7fELF\x02\x01"
    section_offset, section_size, count = (
        struct.unpack_from(form, elf, at)[0] for form, at in (("<Q", 40), ("<H", 58), ("<H", 60))
    )
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, section_offset + i * section_size) for i in range(count)]
    (dynamic,) = (section for section in sections if section[1] == 6)
    strings = sections[dynamic[6]][4]
    tags = [struct.unpack_from("<qQ", elf, at) for at in range(dynamic[4], dynamic[4] + dynamic[5], 16)]
    starts = [strings + value for tag, value in tags if tag in (15, 29)]
    return [elf[start : elf.index(b"\0", start)].decode() for start in starts]


def test_the_wheel_is_for_any_python_on_this_platform_and_holds_no_links(wheel: Path) -> None:
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        assert not any(mode & 0o170000 == 0o120000 for mode in modes.values())
        servers = [name for name in modes if Path(name).stem == "rpc-server"]
        assert all(modes[name] & 0o111 for name in servers)
        assert not any("tests/" in name or name.startswith("build/") for name in modes)
        assert "via_sd_local/models/registry.json" in modes
        assert "via_sd_local/models/profiles/smollm2-135m+smollm2-135m-q4_0.json" in modes


def test_the_source_distribution_has_what_a_build_reads_and_no_build(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    folders = ("via_sd_local", "native", "patches", "models", "tests", "bench", "scripts")
    suffixes = (".py", ".c", ".cpp", ".h", ".inc", ".in", ".cmake", ".txt", ".patch", ".json", ".sh", ".typed")
    wanted = {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and not {"lib", "_vendor"} & set(path.relative_to(ROOT).parts)
    }
    assert {"via_sd_local/chat/__init__.py", "bench/speculative/CMakeLists.txt"} <= wanted
    top = {"CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE", "NOTICE.md", "PKG-INFO"}
    assert wanted | top <= names
    assert not {name for name in names if name.startswith(("build/", "via_sd_local/lib/", "via_sd_local/_vendor"))}
