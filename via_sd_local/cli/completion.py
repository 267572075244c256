"""`via-sd-local completion`: the script with which a shell completes the command's subcommands, options and models."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import Any

from .subcommands import Commands

SHELLS = ("bash", "zsh", "fish")
NAME = "via-sd-local"
DESCRIPTION = f"""\
Print the script that lets a shell complete `{NAME}`. In bash and zsh, put eval "$({NAME} completion bash)" (or zsh)
into ~/.bashrc or ~/.zshrc; for fish, write the output to ~/.config/fish/completions/{NAME}.fish.
"""


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("completion", help="print the completion script of a shell", description=DESCRIPTION)
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from argcomplete.shell_integration import shellcode

    print(shellcode([NAME], shell=args.shell))
    return 0


def answer_shell(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks for completions, and end the process; return at once otherwise."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)


def completes_models(action: argparse.Action) -> None:
    """Complete an argument with models that are here or can be fetched, and with files."""
    action.completer = _models  # type: ignore[attr-defined]


def _models(prefix: str, **_options: Any) -> Iterator[str]:
    from argcomplete.completers import FilesCompleter

    from ..catalog.inventory import listing
    from ..errors import ViaSdError

    with contextlib.suppress(ViaSdError, OSError):
        yield from (entry.name for entry in listing() if entry.name.startswith(prefix))
    yield from FilesCompleter(("gguf",))(prefix)
