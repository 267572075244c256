"""For the tests of patches/llama_cpp.py: a small source that looks like llama-cpp-python's, and a patch for it.

Test files take the fixtures as `name = patching.name`: ruff takes an imported fixture for an unused name.
"""

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
from types import ModuleType

import pytest

PATCHES = Path(__file__).parents[2] / "patches"
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
    monkeypatch.setattr(module, "PATCHES", (patch,))

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
