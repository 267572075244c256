"""`via-sd-local profiles`: list the routing profiles, and describe one."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .output import add_json, print_result
from .subcommands import Commands, add_actions

if TYPE_CHECKING:
    from ..profiles.profile import Profile


def add_parser(commands: Commands) -> None:
    """Add the subcommand and its actions, `list` and `show`."""
    actions = add_actions(commands, "profiles", "list and show routing profiles")
    listing = actions.add_parser("list", help="list the profiles, the user's own first")
    add_json(listing, "one JSON array")
    listing.set_defaults(command=run_list)
    show = actions.add_parser("show", help="describe a profile in words")
    show.add_argument("name", metavar="PROFILE", help="a name from `profiles list`, or a file")
    add_json(show, "the profile as one JSON object")
    show.set_defaults(command=run_show)


def run_list(args: argparse.Namespace) -> int:
    """Print the names, models, recommendations and paths of the profiles."""
    from ..profiles import store

    profiles = list(store.profiles())
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
        for path, profile in profiles
    ]
    print_result(args, rows, _lines(profiles), indent=2)
    return 0


def _lines(profiles: Iterable[tuple[Path, Profile]]) -> Iterator[str]:
    if not profiles:
        yield "no profiles yet; `via-sd-local calibrate` creates one"
    for path, profile in profiles:
        tiered = [level.max_deviation for level in profile.levels if level.mode == "tiered"]
        advice = profile.lossless + (f"; tiered from max_deviation {min(tiered):g} on" if tiered else "")
        yield f"{path.stem}  [{advice}]  {path}"


def run_show(args: argparse.Namespace) -> int:
    """Print one profile."""
    from ..calibration.summary import summary
    from ..json_form import to_json
    from ..profiles import store
    from ..profiles.profile import load

    profile = load(store.path_of(args.name))
    print_result(args, to_json(profile), summary(profile))
    return 0
