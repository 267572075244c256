"""`via-sd-local calibrate`: from a pair of models to their routing profile."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..calibration.plan import DEFAULT_MINUTES, STRATEGIES, Plan
from ..errors import ModelError
from .options import add_ignore_memory

if TYPE_CHECKING:
    from ..calibration.pipeline import Calibrated

DESCRIPTION = """\
Find out what of the verifier the slim tier should skip, which thresholds keep a budget of deviation, and which mode is
fastest; write it down as a routing profile, which other commands then use by themselves. Everything is measured on the
verifier's own answers to a set of prompts. Ctrl-C ends the search early and keeps its best; a run that was ended in
another way goes on where it was when the command is given again.
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("calibrate", help="find the mask and thresholds of a pair", description=DESCRIPTION)
    parser.add_argument("--verifier", metavar="MODEL", required=True, help="the large model, by name or file")
    parser.add_argument("--draft", metavar="MODEL", help="the draft model; without it only the mask is looked for")
    parser.add_argument(
        "--text", metavar="FILE", help="prompts of your own, blank lines between them, or JSON (default: shipped ones)"
    )
    parser.add_argument(
        "--answer-tokens", metavar="N", type=int, default=160, help="longest answer to a prompt (default: %(default)s)"
    )
    parser.add_argument("--threads", metavar="N", type=int, help="threads (default: all cores)")
    add_ignore_memory(parser)
    search = parser.add_argument_group("search")
    search.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="guided",
        help="guided: sublayers one by one, then greedily, then exchanges (default); paper: random with Bayesian "
        "proposals; random: for comparison",
    )
    search.add_argument("--minutes", metavar="N", type=float, help=f"of the search (default: {DEFAULT_MINUTES:g})")
    search.add_argument("--evaluations", metavar="N", type=int, help="masks to try, instead of a time")
    search.add_argument("--skip-ratio", metavar="R", type=float, help="the share of sublayers to skip (default: any)")
    search.add_argument("--seed", metavar="N", type=int, default=0, help="of the search (default: 0)")
    search.add_argument("--mask", metavar="LAYERS", help="take this mask, and do not search")
    parser.add_argument("--output", metavar="FILE", help="the profile's file (default: in the profiles' folder)")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--resume", action="store_true", help="only go on with an earlier run; an error if there is none"
    )
    begin.add_argument("--fresh", action="store_true", help="forget earlier runs of these models on this text")
    parser.add_argument("--json", action="store_true", help="print one JSON object with the profile and its files")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Calibrate, write the profile and the pictures, and say what was found."""
    plan = Plan(
        verifier=args.verifier,
        draft=args.draft,
        text=args.text,
        strategy=args.strategy,
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
    from ..catalog.lookup import resolve
    from ..profiles import store
    from ..profiles.profile import check_writable
    from ..progress import StageBars

    if args.output is not None:
        path = Path(args.output).expanduser()
    else:
        draft = resolve(args.draft) if args.draft is not None else None
        path = store.folder() / store.file_name(resolve(args.verifier), draft)
    try:
        check_writable(path)  # before an hour's work
    except OSError as error:
        raise ModelError(f"{path} cannot be written ({error.strerror}); name another file (--output)") from None
    with StageBars(shown=not args.quiet) as bars:
        calibration = Calibration(plan, bars)
        if args.resume and not calibration.work.exists:
            raise ValueError("there is nothing to resume: no run with these models, text and answer tokens was begun")
        if args.fresh:
            calibration.work.clear()
        calibrated = calibration.run()
    return finish(calibrated, path, as_json=args.json)


def finish(calibrated: Calibrated, path: Path, *, as_json: bool) -> int:
    """Write the files and print; a profile that cannot be written goes to standard output, with exit status 1."""
    from ..calibration.summary import summary
    from ..json_form import to_json
    from ..profiles.profile import dump, write

    profile = calibrated.profile
    try:
        write(dump(profile), path)
    except OSError as error:
        print(dump(profile), end="")
        raise ModelError(
            f"{path} cannot be written ({error.strerror}); the profile is on standard output instead: save that as a "
            "file, and name it with --profile"
        ) from None
    pictures = draw(calibrated, path)
    if as_json:
        print(json.dumps({"path": str(path), "pictures": list(map(str, pictures)), "profile": to_json(profile)}))
        return 0
    print("\n".join(summary(profile)))
    print()
    for picture in pictures:
        print(f"picture: {picture}")
    print(f"profile: {path}")
    return 0


def draw(calibrated: Calibrated, path: Path) -> list[Path]:
    """The pictures beside the profile; none, with a word, where they cannot be drawn or written."""
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
