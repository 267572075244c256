"""`python -m via_sd_local.run`: programs that import llama_cpp themselves get drafts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dropin
import pytest

tiny_path = dropin.tiny_path

PROGRAM = """
import sys
from beside import number            # a module beside the program
from llama_cpp import Llama
path, *rest = sys.argv[1:]
llm = Llama(path, n_ctx=128, n_threads=1, verbose=False)
llm("the sea the sea the sea", max_tokens=24, temperature=0)
drafters = ",".join(drafter.name for drafter in llm._runner.engine.drafters)
print(type(llm).__module__, llm.last_stats["mode"], drafters or "none", rest, __name__, number, sys.argv[0])
sys.exit(7)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "beside.py").write_text("number = 5\n")
    return tmp_path


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "via_sd_local.run", *arguments]
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, **variables}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120)


@pytest.mark.parametrize(
    ("options", "variables", "drafters", "mode"),
    [
        (["--drafter", "lookup"], {}, "lookup", "sd"),
        (["--draft", "MODEL"], {}, "model", "sd"),
        (["--draft", "MODEL", "--drafter", "lookup+model"], {}, "lookup,model", "sd"),
        ([], {"VIA_SD_DRAFT": "MODEL"}, "model", "sd"),
        (["--drafter", "none"], {"VIA_SD_DRAFTER": "lookup"}, "none", "plain"),
        ([], {}, "none", "plain"),
    ],
    ids=str,
)
def test_a_program_gets_drafts_by_options_or_variables(
    folder: Path, tiny_path: Path, options: list[str], variables: dict[str, str], drafters: str, mode: str
) -> None:
    options = [str(tiny_path) if option == "MODEL" else option for option in options]
    variables = {name: str(tiny_path) if value == "MODEL" else value for name, value in variables.items()}
    done = run(folder, *options, "program.py", str(tiny_path), "--draft", "x", **variables)
    assert done.returncode == 7, done.stderr
    expected = f"via_sd_local.dropin.llama {mode} {drafters} ['--draft', 'x'] __main__ 5 program.py\n"
    assert done.stdout == expected


def test_a_module_and_a_command_are_programs_too(folder: Path, tiny_path: Path) -> None:
    done = run(folder, "--drafter", "lookup", "-m", "program", str(tiny_path))
    assert (done.returncode, done.stdout.split()[:3]) == (7, ["via_sd_local.dropin.llama", "sd", "lookup"])
    done = run(folder, "pytest", "--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "pytest"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (["nosuch"], {}, "nosuch is neither a Python file nor a command of this Python environment"),
        (["--draft", "/none.gguf", "program.py"], {}, "the draft model: /none.gguf does not exist"),
        (["program.py"], {"VIA_SD_DRAFT": "/none.gguf"}, "VIA_SD_DRAFT: /none.gguf does not exist"),
        (["--drafter", "magic", "program.py"], {}, "magic"),
        (["--mode", "fast", "program.py"], {}, "fast"),
    ],
    ids=str,
)
def test_wrong_usage_is_one_line_before_the_program_runs(
    folder: Path, arguments: list[str], variables: dict[str, str], message: str
) -> None:
    done = run(folder, *arguments, **variables)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
