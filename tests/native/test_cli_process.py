"""The command as a process: its streams, interruptions, warnings, help and version."""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import warnings
from pathlib import Path

import commands
import pytest
from commands import COMMAND, MODES, PROMPT, Result, Run, greedy, spawn

import via_sd_local
from via_sd_local.__main__ import main as program
from via_sd_local.cli import complete, console

answer, files, run = commands.answer, commands.files, commands.run


def test_an_answer_in_a_process_of_its_own_is_the_answer_alone(files: Path) -> None:
    options = ("--verifier", files / "llama.gguf", "--threads", 1, "--max-tokens", 12, "--prompt-file", "-", "--json")
    result = spawn("complete", *options, *MODES["exact"], input=PROMPT).json
    assert result["text"] == greedy(files / "llama.gguf", PROMPT, 12)[1]


def test_a_recurrent_verifiers_warning_is_the_only_one_in_a_process_of_its_own(files: Path) -> None:
    options = ("--verifier", files / "mamba.gguf", "--draft", files / "llama.gguf", "--mode", "sd", "--threads", 1)
    result = spawn("complete", *options, "--prompt", "x", "--max-tokens", 3)
    assert result.status == 0
    warning = "warning: mamba.gguf cannot be rolled back (recurrent or hybrid): decoding without drafts\n"
    assert result.err.startswith(warning)
    assert result.err.count("warning") == 1


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_reader_that_leaves_early_gets_no_traceback(options: tuple[str, ...], files: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `| head` does once it has enough; here before the first byte, so that the test has no race
    arguments = ("complete", "--verifier", files / "llama.gguf", "--prompt", "x", "--threads", 1, "--max-tokens", 3)
    try:
        command = [str(part) for part in (COMMAND, *arguments, *options)]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    "redirection",
    [
        pytest.param(">/dev/full", marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")),
        ">&-",
        "--prompt-file - <&-",
    ],
)
def test_a_full_disk_or_a_closed_stream_gives_one_line(redirection: str, files: Path) -> None:
    prompt = "" if "--prompt" in redirection else "--prompt x"
    command = f"'{COMMAND}' complete --verifier llama.gguf --max-tokens 3 --threads 1 {prompt} {redirection}"
    done = subprocess.run(command, shell=True, cwd=files, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 1


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_terminal_without_unicode_shows_what_it_can(options: tuple[str, ...], files: Path) -> None:
    arguments = ("--verifier", files / "llama.gguf", "--prompt", PROMPT, "--threads", 1, "--max-tokens", 30)
    result = spawn("complete", *arguments, *options, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert result.status == 0
    assert not result.err or result.err.startswith("note: the answer is cut short")


def test_ctrl_c_exits_with_130(answer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_args: argparse.Namespace) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(complete, "read_prompt", interrupt)
    assert answer() == Result(130, "", "\n")


def test_a_warning_that_comes_again_and_again_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    def warn() -> int:
        for _ in range(3):
            warnings.warn("mind the gap", RuntimeWarning, stacklevel=1)
        return 0

    assert console.run(warn) == 0
    assert capsys.readouterr() == ("", "warning: mind the gap\n")


def test_an_error_of_ours_in_the_code_is_not_disguised(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One-line errors are for what a user can act on; a defect keeps its traceback."""

    def defect() -> int:
        raise AssertionError("a defect")

    with pytest.raises(AssertionError, match="a defect"):
        console.run(defect)


HELP = """
import sys
from via_sd_local import __main__ as program
from via_sd_local.chat import __main__ as chat
commands = [[], ["chat"], ["complete"], ["models"], ["models", "list"], ["models", "pull"], ["doctor"], ["completion"]]
for main, arguments in [*((program.main, command) for command in commands), (chat.main, [])]:
    try:
        main([*arguments, "--help"])
    except SystemExit as end:
        assert end.code == 0, arguments
loaded = [name for name in ("llama_cpp", "via_sd_local.binding", "numpy", "huggingface_hub") if name in sys.modules]
print("loaded:", loaded, file=sys.stderr)
"""


def test_help_of_every_command_works_without_the_library() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == 9
    assert "llama_cpp" not in done.stderr
    assert "via_sd_local.binding" not in done.stderr
    for words in ("--thresholds RULE", "--max-tokens N", "--quiet", "--system TEXT"):
        assert words in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("via_sd_local", "--version"),
        ("via_sd_local", "chat", "--version"),
        ("via_sd_local.chat", "--version"),
    ],
)
def test_the_version_is_printed(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"via-sd-local {via_sd_local.__version__}\n", "")


def test_the_command_chats(files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PROMPT.encode())))
    options = ("--verifier", str(files / "template.gguf"), "--max-tokens", "12", "--threads", "1", "--temperature", "0")
    assert program(["chat", *options]) == 0
    rendered = f"user: {PROMPT}\nassistant:"
    assert capsys.readouterr().out == greedy(files / "template.gguf", rendered, 12)[1] + "\n"


def test_the_shell_completes_subcommands_options_and_models(tmp_path: Path) -> None:
    """What bash asks the command for, over descriptor 8, when Tab is pressed at the end of a line."""

    def completions(line: str) -> set[str]:
        variables = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
        command = f"'{sys.executable}' -m via_sd_local 8>&1 9>&2 >/dev/null 2>&1"
        environment = {**os.environ, **variables, "VIA_SD_HOME": str(tmp_path)}
        done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, timeout=60)
        return {word.strip() for word in done.stdout.split("\n")}

    assert {"chat", "complete", "models", "completion"} <= completions("via-sd-local c") | completions("via-sd-local m")
    assert completions("via-sd-local complete --max-t") == {"--max-tokens"}
    assert completions("via-sd-local chat --mode ti") == {"tiered"}
    assert "smollm2-135m" in completions("via-sd-local complete --verifier smol")
    assert "gemma-3-270m" in completions("via-sd-local models pull ge")


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete"), ("zsh", "compdef"), ("fish", "complete --command")])
def test_each_shell_has_a_script(shell: str, word: str, run: Run) -> None:
    result = run("completion", shell)
    assert (result.status, result.err) == (0, "")
    assert word in result.out
    assert "via-sd-local" in result.out
