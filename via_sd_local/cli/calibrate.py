"""`via-sd-local calibrate`: make the routing profile of a pair of models."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..calibration.plan import ACQUISITIONS, DEFAULT_MINUTES, DEFAULT_PAPER, STRATEGIES, PaperSearch, Plan
from ..errors import ModelError
from ..files import user_path
from .completion import completes_models
from .options import THREADS_HELP, add_ignore_memory
from .output import add_json, add_quiet, print_result
from .subcommands import Commands

if TYPE_CHECKING:
    from ..calibration.pipeline import Calibrated

DESCRIPTION = """\
Find the layers that the slim tier should skip, the thresholds that keep the deviation within a budget, and the fastest
mode. The result is written as a routing profile, which other commands then use by default. Everything is measured on
the verifier's own answers to a set of prompts. Ctrl-C ends the search early and keeps the best mask so far; a run that
was interrupted in any other way continues where it stopped when the same command is run again.
"""


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "calibrate", help="find the mask and thresholds of a pair of models", description=DESCRIPTION
    )
    models = (
        parser.add_argument("--verifier", metavar="MODEL", required=True, help="the large model: a name or a file"),
        parser.add_argument("--draft", metavar="MODEL", help="the draft; without one, only the mask is searched for"),
    )
    for action in models:
        completes_models(action)
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="your own prompts, separated by blank lines, or JSON (default: the prompts of this package)",
    )
    parser.add_argument(
        "--answer-tokens",
        metavar="N",
        type=int,
        default=160,
        help="length limit of the answers, in tokens (default: %(default)s)",
    )
    parser.add_argument("--threads", metavar="N", type=int, help=THREADS_HELP)
    add_ignore_memory(parser)
    search = parser.add_argument_group("search")
    search.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="guided",
        help="guided: measure the sublayers one by one, then add them greedily, then exchange them (default); paper: "
        "random masks with Bayesian proposals; random: random masks, for comparison",
    )
    add_paper(parser)
    search.add_argument(
        "--minutes",
        metavar="N",
        type=float,
        help=f"time limit of the search, in minutes (default: {DEFAULT_MINUTES:g})",
    )
    search.add_argument("--evaluations", metavar="N", type=int, help="number of masks to try, instead of a time limit")
    search.add_argument("--skip-ratio", metavar="R", type=float, help="share of the sublayers to skip (default: any)")
    search.add_argument("--seed", metavar="N", type=int, default=0, help="random seed of the search (default: 0)")
    search.add_argument("--mask", metavar="LAYERS", help="use this mask, and do not search for one")
    parser.add_argument("--output", metavar="FILE", help="file of the profile (default: in the profiles folder)")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--resume", action="store_true", help="continue an earlier run; fail if there is none")
    begin.add_argument("--fresh", action="store_true", help="discard earlier runs of these models on this text")
    add_json(parser, "one JSON object with the profile and its files")
    add_quiet(parser)
    parser.set_defaults(command=run)


def add_paper(parser: argparse.ArgumentParser) -> None:
    """Add the options of strategy `paper`."""
    default = DEFAULT_PAPER
    group = parser.add_argument_group("search by --strategy paper")
    group.add_argument(
        "--alpha",
        metavar="A",
        type=float,
        default=default.alpha,
        help="margin of the KL cost, from 0 (none) to below 1 (default: %(default)s)",
    )
    group.add_argument(
        "--beta",
        metavar="B",
        type=float,
        default=default.beta,
        help="margin of the KL cost, from above 0 to 1 (none) (default: %(default)s)",
    )
    group.add_argument(
        "--theta",
        metavar="N",
        type=int,
        default=default.theta,
        help="every N-th mask comes from Bayesian optimisation, the others are random (default: %(default)s)",
    )
    group.add_argument(
        "--acquisition",
        choices=ACQUISITIONS,
        default=default.acquisition,
        help="acquisition function of Bayesian optimisation: expected improvement, or GP-UCB (default: %(default)s)",
    )
    group.add_argument("--keep-ends", action="store_true", help="never skip the first or the last layer")
    group.add_argument(
        "--by-cost",
        action="store_true",
        help="minimise the KL cost also without --skip-ratio (default there: maximise the predicted speed)",
    )


def run(args: argparse.Namespace) -> int:
    """Calibrate, write the profile and its pictures, and print the results."""
    plan = Plan(
        verifier=args.verifier,
        draft=args.draft,
        text=args.text,
        strategy=args.strategy,
        paper=PaperSearch(args.alpha, args.beta, args.theta, args.acquisition, args.keep_ends, args.by_cost),
        minutes=args.minutes,
        evaluations=args.evaluations,
        skip_ratio=args.skip_ratio,
        mask=args.mask,
        seed=args.seed,
        threads=args.threads,
        answer_tokens=args.answer_tokens,
        check_memory=not args.ignore_memory,
    )

    from ..calibration.pipeline import Calibration
    from ..catalog.fetching import fetch_missing
    from ..catalog.lookup import resolve
    from ..profiles import store
    from ..profiles.profile import check_writable
    from ..progress import StageBars

    fetch_missing(args.verifier, args.draft, progress=not args.quiet)
    if args.output is not None:
        path = user_path(args.output)
    else:
        path = store.default_path(resolve(args.verifier), resolve(args.draft) if args.draft is not None else None)
    try:
        check_writable(path)  # before an hour's work
    except OSError as error:
        raise ModelError(f"{path} cannot be written ({error.strerror}); name another file (--output)") from None
    with StageBars(shown=not args.quiet) as bars:
        calibration = Calibration(plan, bars)
        if args.resume and not calibration.work.exists:
            raise ValueError("there is nothing to resume: no earlier run had these models, text and --answer-tokens")
        if args.fresh:
            calibration.work.clear()
        calibrated = calibration.run()
    return finish(args, calibrated, path)


def finish(args: argparse.Namespace, calibrated: Calibrated, path: Path) -> int:
    """Write the profile and its pictures, and print the results.

    A profile that cannot be written is printed on standard output instead, followed by a ModelError.
    """
    from ..calibration.summary import summary
    from ..json_form import to_json
    from ..profiles.profile import dump, write

    profile = calibrated.profile
    try:
        write(dump(profile), path)
    except OSError as error:
        print(dump(profile), end="")
        raise ModelError(
            f"{path} cannot be written ({error.strerror}); the profile is on standard output instead: save it as a "
            "file and pass that with --profile"
        ) from None
    pictures = save_pictures(calibrated, path)
    result = {"path": str(path), "pictures": list(map(str, pictures)), "profile": to_json(profile)}
    lines = [*summary(profile), "", *(f"picture: {picture}" for picture in pictures), f"profile: {path}"]
    print_result(args, result, lines)
    return 0


def save_pictures(calibrated: Calibrated, path: Path) -> list[Path]:
    """Save the pictures beside the profile and return their paths; if that fails, say why and return none."""
    try:
        from ..calibration.pictures import save_all
    except ImportError:
        print("(no pictures: they need matplotlib; pip install 'via-sd-local[pictures]')", file=sys.stderr)
        return []
    try:
        return save_all(calibrated.profile, calibrated.search.tried if calibrated.search else (), path)
    except OSError as error:
        print(f"(no pictures: {error.strerror})", file=sys.stderr)
        return []
