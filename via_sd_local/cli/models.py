"""`via-sd-local models`: list the models of the catalogue and of this machine, fetch them, and remove them."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .completion import completes_models
from .output import add_json, add_quiet, print_result, shows_progress
from .subcommands import Commands, add_actions

if TYPE_CHECKING:
    from ..catalog.inventory import CatalogEntry


def add_parser(commands: Commands) -> None:
    """Add the subcommand and its actions, `list`, `pull` and `rm`."""
    actions = add_actions(commands, "models", "list, fetch and remove models")
    listing = actions.add_parser("list", help="list the catalogue, and the models on this machine")
    add_json(listing, "one JSON array, with licenses and paths")
    listing.set_defaults(command=run_list)
    pull = actions.add_parser("pull", help="fetch a model; the last line printed is its path")
    name = pull.add_argument(
        "name", metavar="NAME", help="a name from `models list`, hf:owner/repo, hf:owner/repo:QUANT or …/file.gguf"
    )
    completes_models(name)
    pull.add_argument(
        "--verify", action="store_true", help="check the hash of a file that is already here; fetch it again if wrong"
    )
    add_json(pull)
    add_quiet(pull)
    pull.set_defaults(command=run_pull)
    remove = actions.add_parser("rm", help="remove a model from this machine")
    completes_models(remove.add_argument("name", metavar="NAME", help="a name from `models list`"))
    add_json(remove)
    remove.set_defaults(command=run_remove)


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
    """Yield a line for each model, as wide as the terminal unless a name alone is wider, and what the words mean."""
    columns = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80
    width = max((len(entry.name) for entry in entries if len(entry.name) <= _NAME_COLUMNS), default=0)
    for entry in entries:
        line = f"{entry.size / 1e6:6.0f} MB  {_place(entry):<5}  {entry.name:<{width}}"
        room = columns - len(line) - 2
        if room >= len(entry.description):
            line += f"  {entry.description}"
        elif room >= _LEAST_COLUMNS:
            line += f"  {entry.description[: room - 1]}…"
        yield line.rstrip()
    yield ""
    places = {_place(entry) for entry in entries}
    yield from (f"{place:<5}  {text}" for place, text in _MEANINGS.items() if place in places)


_NAME_COLUMNS, _LEAST_COLUMNS = 40, 12
_MEANINGS = {
    "here": "in the models folder (`models list --json` shows the paths)",
    "hub": "in the hub's cache, which other programs share",
    "pull": "not on this machine; `via-sd-local models pull NAME` fetches it",
    "build": "not on this machine; `via-sd-local testbed build` makes it",
}


def _place(entry: CatalogEntry) -> str:
    if entry.path is not None:
        return "hub" if entry.name.startswith("hf:") else "here"
    return "build" if entry.made_by else "pull"


def run_pull(args: argparse.Namespace) -> int:
    """Fetch a model and print its path."""
    from ..catalog.puller import pull

    path = pull(args.name, progress=shows_progress(args), verify=args.verify)
    print_result(args, {"name": args.name, "path": str(path)}, [str(path)])
    return 0


def run_remove(args: argparse.Namespace) -> int:
    """Remove a model, and print where it was and its size."""
    from ..catalog.removal import remove

    removed = remove(args.name)
    result = {"name": args.name, "path": str(removed.path), "size": removed.size}
    print_result(args, result, [f"removed {removed.path} ({removed.size / 1e6:.0f} MB)"])
    return 0
