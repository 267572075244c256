"""Runs a Python program that imports llama_cpp itself, with the drop-in in place of `llama_cpp.Llama`.

python -m via_sd_local.run --draft small.gguf PROGRAM [ARGUMENT …]
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable
from importlib.metadata import entry_points

from .errors import ViaSdError


def main(argv: list[str] | None = None) -> int:
    """Run the program that the arguments name; returns its exit status, or 2 with one line for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m via_sd_local.run",
        usage="%(prog)s [--draft MODEL] [--drafter NAME] [--mode MODE] [-m] PROGRAM [ARGUMENT ...]",
        description="Run a Python program that uses llama-cpp-python with drafts.",
    )
    parser.add_argument("--draft", metavar="MODEL", help="draft model: a file or a catalogue name (VIA_SD_DRAFT)")
    parser.add_argument(
        "--drafter", metavar="NAME", help="what drafts, such as lookup or lookup+model (VIA_SD_DRAFTER)"
    )
    parser.add_argument("--mode", help="plain, sd, exact or tiered; auto by default (VIA_SD_MODE)")
    parser.add_argument("-m", dest="is_module", action="store_true", help="PROGRAM is a module, as for python -m")
    parser.add_argument("program", metavar="PROGRAM", help="a command of this environment, a Python file, or a module")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="the program's own arguments")
    given = parser.parse_args(argv)
    try:
        program = _program(given.program, is_module=given.is_module)
        from .dropin.llama import install  # loads the library

        install(draft_model_path=given.draft, drafter=given.drafter, mode=given.mode)
    except (ViaSdError, ValueError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    sys.argv = [given.program, *given.arguments]
    status = program()
    return status if isinstance(status, int) else 0


def _program(name: str, *, is_module: bool) -> Callable[[], object]:
    """Return what runs a program; ValueError for a name that is neither a file nor a command of this environment."""
    if is_module:
        sys.path[0] = os.getcwd()
        return lambda: runpy.run_module(name, run_name="__main__", alter_sys=True)
    if os.path.isfile(name):
        sys.path[0] = os.path.dirname(os.path.abspath(name))
        return lambda: runpy.run_path(name, run_name="__main__")
    for command in entry_points(group="console_scripts", name=name):
        return lambda: command.load()()
    raise ValueError(
        f"{name} is neither a Python file nor a command of this Python environment ({sys.prefix}); for a module, put "
        "-m before it"
    )


if __name__ == "__main__":
    sys.exit(main())
