"""The command `via-sd-local`, also `python -m via_sd_local`: the commands of `cli`, and the chat."""

from __future__ import annotations

import sys

from .cli import console


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status (1: error, 2: wrong usage)."""

    def start() -> int:
        from .chat.program import add_parser  # here, so that Ctrl-C during imports ends as everywhere
        from .cli.program import run_command

        return run_command(argv, add_parser)

    return console.run(start)


if __name__ == "__main__":
    sys.exit(main())
