"""`via-sd-local testbed`: build a large model with a small model's text, for measuring speed."""

from __future__ import annotations

import argparse

from ..files import user_path
from .output import add_json, add_quiet, print_result, shows_progress
from .subcommands import Commands, add_actions

DESCRIPTION = """\
Build a testbed for measuring speed: a llama model made wider without changing its function, and deeper with copies of
layers that hardly matter, so that the best mask for the slim tier is known. Its draft model, the source in Q4_0, is
written beside it. The last line printed is the path of the testbed. Existing files are kept.
"""


def add_parser(commands: Commands) -> None:
    """Add the subcommand and its action, `build`."""
    from ..testbed.naming import DEFAULT_RECIPE, DEFAULT_SOURCE

    actions = add_actions(commands, "testbed", "build a large model for measuring speed")
    build = actions.add_parser("build", help="build the testbed and its draft model", description=DESCRIPTION)
    build.add_argument(
        "--source",
        metavar="MODEL",
        default=DEFAULT_SOURCE,
        help="a llama model: a name from `models list` or a file (default: %(default)s)",
    )
    recipe = DEFAULT_RECIPE
    build.add_argument("--embed", type=int, default=recipe.embed, metavar="N", help="width (default: %(default)s)")
    build.add_argument(
        "--ffn", type=int, default=recipe.ffn, metavar="N", help="number of FFN units (default: %(default)s)"
    )
    build.add_argument(
        "--kv-heads",
        type=int,
        default=recipe.kv_heads,
        metavar="N",
        help="number of KV heads; the query heads follow (default: %(default)s)",
    )
    build.add_argument(
        "--copies",
        type=int,
        default=recipe.copies,
        metavar="N",
        help="number of copies of layers to insert (default: %(default)s)",
    )
    place = build.add_mutually_exclusive_group()
    place.add_argument(
        "--copies-from",
        type=float,
        default=recipe.copies_from,
        metavar="SHARE",
        help="insert copies only after this share of the layers (default: %(default)s)",
    )
    place.add_argument("--spread", action="store_true", help="spread the copies over the whole depth")
    build.add_argument(
        "--scale",
        type=float,
        default=recipe.scale,
        metavar="S",
        help="factor of the outputs of the copies (default: %(default)s)",
    )
    build.add_argument(
        "--quant",
        default=recipe.quant,
        metavar="TYPE",
        help="quantisation, as llama.cpp names it: F16, Q8_0, Q4_K_M, … (default: %(default)s)",
    )
    build.add_argument("--output", metavar="FILE", help="file of the testbed (default: in the models folder)")
    build.add_argument("--force", action="store_true", help="build again even if the files exist")
    add_json(build, "one JSON object with verifier, draft, mask and sizes")
    add_quiet(build)
    build.set_defaults(command=run_build)


def run_build(args: argparse.Namespace) -> int:
    """Build the testbed, and print where its files are."""
    from ..catalog.fetching import fetch_missing
    from ..catalog.lookup import resolve
    from ..testbed.build import build
    from ..testbed.naming import paths_of
    from ..testbed.recipe import Recipe

    recipe = Recipe(
        embed=args.embed,
        ffn=args.ffn,
        kv_heads=args.kv_heads,
        copies=args.copies,
        copies_from=0.0 if args.spread else args.copies_from,
        scale=args.scale,
        quant=args.quant.upper(),
    )
    fetch_missing(args.source, progress=shows_progress(args))
    source = resolve(args.source)
    verifier, draft = paths_of(source, recipe, user_path(args.output) if args.output else None)
    testbed = build(source, recipe, verifier, draft, force=args.force, progress=shows_progress(args))
    sizes = {"verifier": testbed.verifier.stat().st_size, "draft": testbed.draft.stat().st_size}
    result = {
        "verifier": str(testbed.verifier),
        "draft": str(testbed.draft),
        "mask": str(testbed.mask),
        "sizes": sizes,
    }
    lines = [
        f"draft: {testbed.draft} ({sizes['draft'] / 1e6:.0f} MB)",
        f"mask: {testbed.mask}",
        f"verifier, {sizes['verifier'] / 1e6:.0f} MB:",
        str(testbed.verifier),
    ]
    print_result(args, result, lines)
    return 0
