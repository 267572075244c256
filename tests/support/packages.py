"""Packages that only some tests need: pip fetches them once, into the build folder of the checkout."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def fetched(*wanted: str) -> Path:
    """A folder with packages, by pip's arguments; skips the test where pip cannot install them."""
    name = f"{wanted[-1]}-{sys.implementation.cache_tag}"
    # of the checkout: it outlives a run of the tests, and `make clean` removes it
    folder = ROOT / "build" / "examples" / name
    if not folder.is_dir():
        partial = folder.with_name(f".{secrets.token_hex(4)}")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--target",
            str(partial),
        ]
        done = subprocess.run([*pip, *wanted], capture_output=True, text=True, timeout=600)
        if done.returncode:
            shutil.rmtree(partial, ignore_errors=True)
            pytest.skip(f"pip cannot install {wanted[-1]} here: {done.stderr.strip().splitlines()[-1:]}")
        partial.replace(folder)
    return folder
