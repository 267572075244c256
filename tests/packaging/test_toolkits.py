"""A GPU build that lacks its toolkit says so when it is configured, with the remedy; and the build files agree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from via_sd_local.binding import build_info

ROOT = Path(__file__).parents[2]
PROJECT = f"""
cmake_minimum_required(VERSION 3.21)
project(toolkits LANGUAGES NONE)
include("{(ROOT / "native" / "toolkits.cmake").as_posix()}")
message(STATUS "nothing is missing")
"""


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake on PATH")
@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("GGML_CUDA", "GGML_CUDA=ON needs the CUDA toolkit, and nvcc was not found"),
        ("GGML_VULKAN", "GGML_VULKAN=ON needs the Vulkan headers, the Vulkan loader and the shader compiler glslc"),
        pytest.param(
            "GGML_METAL",
            "GGML_METAL=ON is for macOS; this is Linux",
            marks=pytest.mark.skipif(not os.path.exists("/proc"), reason="not Linux"),
        ),
        ("GGML_NATIVE", "nothing is missing"),
    ],
)
def test_a_missing_toolkit_is_named_with_its_remedy(option: str, words: str, tmp_path: Path) -> None:
    cmake = shutil.which("cmake")
    assert cmake is not None
    (tmp_path / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
    hidden = {"CUDACXX": "/nonexistent/nvcc", "PATH": "/nonexistent", "CUDA_PATH": "", "VULKAN_SDK": "/nonexistent"}
    nowhere = ["-DCMAKE_FIND_ROOT_PATH=/nonexistent", "-DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY"]
    nowhere += ["-DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY", "-DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=ONLY"]
    command = [cmake, "-G", "Unix Makefiles", "-DCMAKE_MAKE_PROGRAM=true", f"-D{option}=ON", *nowhere]
    command += ["-S", str(tmp_path), "-B", str(tmp_path / "build")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **hidden}, cwd=tmp_path
    )
    said = " ".join((done.stdout + done.stderr).split())
    assert words in said
    assert (done.returncode == 0) == (words == "nothing is missing")


def test_the_build_names_its_backends() -> None:
    backends = build_info()["backends"]
    assert any(name.startswith("ggml-cpu") for name in backends)
    assert all(re.fullmatch(r"ggml-[a-z0-9_-]+", name) for name in backends)


def test_run_paths_are_set_for_both_kinds_of_loaders() -> None:
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    assert re.search(r'if\(APPLE\)\s+set\(CMAKE_INSTALL_RPATH "@loader_path"\)', text)
    assert re.search(r'elseif\(UNIX\)\s+set\(CMAKE_INSTALL_RPATH "\$ORIGIN"\)', text)
