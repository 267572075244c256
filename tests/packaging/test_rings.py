"""The rings of the tests: which of them need the compiled library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import FAST_RINGS

ROOT = Path(__file__).parents[2]


def collect(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_the_fast_rings_are_collected_without_the_compiled_library(tmp_path: Path) -> None:
    """A run of them refuses its import; any test that reached for it while it runs would fail in `make test-fast`."""
    run = collect("-m", FAST_RINGS, "tests/pure", "tests/engine")
    assert run.returncode == 0, run.stdout[-2000:]
    assert f'-m "{FAST_RINGS}"' in (ROOT / "Makefile").read_text(encoding="utf-8")
    reaching = tmp_path / "test_reaching.py"
    reaching.write_text("import pytest\npytestmark = pytest.mark.pure\nimport via_sd_local.binding\n", encoding="utf-8")
    run = collect("-m", FAST_RINGS, "-p", "conftest", "-c", str(ROOT / "pyproject.toml"), str(reaching))
    assert run.returncode != 0
    assert "via_sd_local.binding belongs to the rings that need the compiled library" in run.stdout
