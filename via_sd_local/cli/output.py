"""The output of commands: the options `--json` and `--quiet`, and the printing of results."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine.stats import Stats
    from ..engine.steps import FinishReason


def add_json(parser: argparse.ArgumentParser, content: str = "one JSON object") -> None:
    """Add `--json`, which prints `content`."""
    parser.add_argument("--json", action="store_true", help=f"print {content}")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add `--quiet`, which hides progress bars."""
    parser.add_argument("--quiet", action="store_true", help="show no progress bars")


def shows_progress(args: argparse.Namespace) -> bool:
    """Return whether a command shows a progress bar: with neither `--quiet` nor `--json`."""
    return not (args.quiet or args.json)


def print_result(args: argparse.Namespace, value: object, lines: Iterable[str], *, indent: int | None = None) -> None:
    """Print a result on standard output: `value` as JSON with `--json`, else the lines."""
    if args.json:
        print(json.dumps(value, indent=indent))
    else:
        for line in lines:
            print(line)


def note_if_cut(finish_reason: FinishReason | None, stats: Stats, n_ctx: int) -> None:
    """Say on standard error that the printed answer was cut short, by what, and which option changes it."""
    if finish_reason != "length" or not stats.completion_tokens:
        return
    if stats.prompt_tokens + stats.completion_tokens >= n_ctx:
        reason = f"the context of {n_ctx} tokens is full; --n-ctx sets a larger one"
    else:
        reason = f"it reached {stats.completion_tokens} tokens; --max-tokens sets another limit, and -1 none"
    print(f"note: the answer is cut short: {reason}", file=sys.stderr)
