"""The command `via-sd-local`."""

from __future__ import annotations

import argparse

from . import console


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with all subcommands; each sets `command`, a function of the parsed arguments."""
    from .._version import version
    from . import calibrate, complete, doctor, models, profiles, rpc_server, testbed

    parser = argparse.ArgumentParser(
        prog="via-sd-local",
        description="Three-tier speculative decoding (VIA-SD) for GGUF models on llama.cpp. "
        "To chat in the terminal, run python -m via_sd_local.chat.",
    )
    parser.add_argument("--version", action="version", version=f"via-sd-local {version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (complete, models, calibrate, profiles, testbed, rpc_server, doctor):
        command.add_parser(commands)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status (1: error, 2: wrong usage)."""

    def start() -> int:
        args = build_parser().parse_args(argv)  # inside console.run, so that Ctrl-C during imports is handled too
        return int(args.command(args))

    return console.run(start)
