"""`via-sd-local models`: list the catalogue, and fetch models from it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .output import add_json, add_quiet, print_result, shows_progress
from .subcommands import Commands, add_actions

if TYPE_CHECKING:
    from ..catalog.inventory import CatalogEntry


def add_parser(commands: Commands) -> None:
    """Add the subcommand and its actions, `list` and `pull`."""
    actions = add_actions(commands, "models", "list and fetch models")
    listing = actions.add_parser("list", help="list the catalogue, with the paths of the models on this machine")
    add_json(listing, "one JSON array")
    listing.set_defaults(command=run_list)
    pull = actions.add_parser("pull", help="fetch a model; the last line printed is its path")
    pull.add_argument("name", metavar="NAME", help="a name from `models list`, or hf:owner/repo/file.gguf")
    pull.add_argument(
        "--verify", action="store_true", help="check the hash of a file that is already here; fetch it again if wrong"
    )
    add_json(pull)
    add_quiet(pull)
    pull.set_defaults(command=run_pull)


def run_list(args: argparse.Namespace) -> int:
    """Print the catalogue."""
    from ..catalog.inventory import listing

    entries = listing()
    rows = [
        {
            "name": entry.name,
            "description": entry.description,
            "license": entry.license,
            "size": entry.size,
            "path": str(entry.path) if entry.path else None,
        }
        for entry in entries
    ]
    print_result(args, rows, _lines(entries), indent=2)
    return 0


def _lines(entries: Sequence[CatalogEntry]) -> Iterator[str]:
    width = max((len(entry.name) for entry in entries), default=0)
    for entry in entries:
        remedy = f"build it with `{entry.made_by}`" if entry.made_by else "fetch it with `models pull`"
        place = str(entry.path) if entry.path else f"not on this machine; {remedy}"
        yield f"{entry.name:<{width}}  {entry.size / 1e6:5.0f} MB  {entry.description}  [{place}]"


def run_pull(args: argparse.Namespace) -> int:
    """Fetch a model and print its path."""
    from ..catalog.puller import pull

    path = pull(args.name, progress=shows_progress(args), verify=args.verify)
    print_result(args, {"name": args.name, "path": str(path)}, [str(path)])
    return 0
