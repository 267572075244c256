"""The command `via-sd-local` without the chat, which `via_sd_local.__main__` adds."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from . import console
from .parser import Parser
from .subcommands import Commands


def build_parser(*more: Callable[[Commands], None]) -> argparse.ArgumentParser:
    """Return the parser with all subcommands; each sets `command`, a function of the parsed arguments.

    Each of `more` adds a subcommand of another room, listed before the others.
    """
    from .._version import version
    from . import calibrate, complete, completion, doctor, models, profiles, rpc_server, testbed

    parser = Parser(
        prog="via-sd-local", description="Three-tier speculative decoding (VIA-SD) for GGUF models on llama.cpp."
    )
    parser.add_argument("--version", action="version", version=f"via-sd-local {version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add_parser in more:
        add_parser(commands)
    for command in (complete, models, calibrate, profiles, testbed, rpc_server, doctor, completion):
        command.add_parser(commands)
    return parser


def run_command(argv: list[str] | None, *more: Callable[[Commands], None]) -> int:
    """Parse the arguments and run the subcommand; `more` as in `build_parser`."""
    from .completion import answer_shell

    parser = build_parser(*more)
    answer_shell(parser)
    args = parser.parse_args(argv)
    return int(args.command(args))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status (1: error, 2: wrong usage)."""
    return console.run(lambda: run_command(argv))  # inside console.run, so that Ctrl-C during imports is handled too
