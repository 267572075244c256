"""`via-sd-local profiles`: the routing profiles that there are, and what they say."""

from __future__ import annotations

import argparse
import json


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand with its own two."""
    parser = commands.add_parser("profiles", help="list and show routing profiles")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="the profiles by name, the user's own first")
    listing.add_argument("--json", action="store_true", help="print one JSON array")
    listing.set_defaults(command=run_list)
    show = actions.add_parser("show", help="what a profile says, in words")
    show.add_argument("name", metavar="PROFILE", help="a name from `profiles list`, or a file")
    show.add_argument("--json", action="store_true", help="print the profile as one JSON object")
    show.set_defaults(command=run_show)


def run_list(args: argparse.Namespace) -> int:
    """Print names, models, recommendations and places."""
    from ..profiles import store

    found = list(store.profiles())
    if args.json:
        rows = [
            {
                "name": path.stem,
                "path": str(path),
                "verifier": profile.verifier.file,
                "draft": profile.draft.file if profile.draft else None,
                "mask": profile.mask,
                "lossless": profile.lossless,
                "levels": {f"{level.max_deviation:g}": level.mode for level in profile.levels},
            }
            for path, profile in found
        ]
        print(json.dumps(rows, indent=2))
        return 0
    if not found:
        print("no profiles; `via-sd-local calibrate` makes one")
    for path, profile in found:
        paying = [level.max_deviation for level in profile.levels if level.mode == "tiered"]
        advice = profile.lossless + (f"; tiered from max_deviation {min(paying):g} on" if paying else "")
        print(f"{path.stem}  [{advice}]  {path}")
    return 0


def run_show(args: argparse.Namespace) -> int:
    """Print one profile."""
    from ..calibration.summary import summary
    from ..json_form import to_json
    from ..profiles import store
    from ..profiles.profile import load

    profile = load(store.path_of(args.name))
    print(json.dumps(to_json(profile)) if args.json else "\n".join(summary(profile)))
    return 0
