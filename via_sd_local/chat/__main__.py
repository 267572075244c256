"""`python -m via_sd_local.chat`."""

from __future__ import annotations

import sys

from ..cli import console


def main(argv: list[str] | None = None) -> int:
    """Run the chat; returns the exit status (1: error, 2: wrong usage)."""

    def start() -> int:
        from .program import build_parser, run  # here, so that Ctrl-C during imports ends as everywhere

        return run(build_parser().parse_args(argv))

    return console.run(start)


if __name__ == "__main__":
    sys.exit(main())
