"""`via-sd-local models`: the catalogue, and fetching from it."""

from __future__ import annotations

import argparse
import json


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand with its own two."""
    parser = commands.add_parser("models", help="list and fetch models")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="the models by name, and where those that are here lie")
    listing.add_argument("--json", action="store_true", help="print one JSON array")
    listing.set_defaults(command=run_list)
    pull = actions.add_parser("pull", help="fetch a model; the last line printed is its path")
    pull.add_argument("name", metavar="NAME", help="a name from `models list`, or hf:owner/repo/file.gguf")
    pull.add_argument("--json", action="store_true", help="print one JSON object")
    pull.add_argument("--verify", action="store_true", help="hash what is here already; fetch it anew if wrong")
    pull.add_argument("--quiet", action="store_true", help="no progress bar")
    pull.set_defaults(command=run_pull)


def run_list(args: argparse.Namespace) -> int:
    """Print the catalogue."""
    from ..catalog.inventory import listing

    entries = listing()
    if args.json:
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
        print(json.dumps(rows, indent=2))
        return 0
    width = max((len(entry.name) for entry in entries), default=0)
    for entry in entries:
        remedy = f"make it with `{entry.made_by}`" if entry.made_by else "fetch it with `models pull`"
        place = str(entry.path) if entry.path else f"not here; {remedy}"
        print(f"{entry.name:<{width}}  {entry.size / 1e6:5.0f} MB  {entry.description}  [{place}]")
    return 0


def run_pull(args: argparse.Namespace) -> int:
    """Fetch a model and print its path."""
    from ..catalog.puller import pull

    path = pull(args.name, progress=not (args.quiet or args.json), verify=args.verify)
    print(json.dumps({"name": args.name, "path": str(path)}) if args.json else path)
    return 0
