"""The examples, on a tiny model, where the libraries that they show are installed."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import dropin
import pytest

tiny_path = dropin.tiny_path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def is_installed(distribution: str) -> bool:
    try:
        return bool(metadata.version(distribution))
    except metadata.PackageNotFoundError:
        return False


@pytest.mark.parametrize(
    ("example", "needs"),
    [("langchain_llama.py", "langchain-community"), ("llama_index_llama.py", "llama-index-llms-llama-cpp")],
)
def test_a_wrapper_of_llama_cpp_python_runs_on_the_drop_in(example: str, needs: str, tiny_path: Path) -> None:
    if not is_installed(needs):
        # not in the extra `test`: 31 seconds and 330 MB for both, and plugins of pytest that every run would load
        pytest.skip(f"{needs} is not installed; {EXAMPLES.name}/{example} says how (about 15 seconds, 110 to 230 MB)")
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / example), str(tiny_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].startswith("via_sd_local.llama ")
