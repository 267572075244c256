"""The examples, on a tiny model, with the libraries that they show; pip fetches these once into the build folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dropin
import pytest
from packages import fetched

tiny_path = dropin.tiny_path

pytestmark = pytest.mark.examples

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# not in the extra `test`: they bring plugins of pytest that every run would load. Half a minute and 240 MB each
LANGCHAIN = (("langchain-community==0.4.2",),)
# with its dependencies, the second would compile llama-cpp-python
LLAMA_INDEX = (("llama-index-core==0.14.25",), ("--no-deps", "llama-index-llms-llama-cpp==0.7.0"))


@pytest.mark.parametrize(
    ("example", "packages"),
    [("langchain_llama.py", LANGCHAIN), ("llama_index_llama.py", LLAMA_INDEX)],
    ids=["langchain", "llama-index"],
)
def test_a_wrapper_of_llama_cpp_python_runs_on_the_drop_in(
    example: str, packages: tuple[tuple[str, ...], ...], tiny_path: Path
) -> None:
    path = os.pathsep.join(str(fetched(*each)) for each in packages)
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / example), str(tiny_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].startswith("via_sd_local.dropin.llama ")
