"""`via-sd-local testbed`: a verifier of a laptop's usual cost with a small model's text, for measuring speed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..testbed.recipe import Recipe

DESCRIPTION = """\
Build a testbed: a llama model made wider without changing its function, and deeper with copies of layers that hardly
matter, so that the best mask for the slim tier is known. Its draft, the source in Q4_0, is written beside it. The last
line printed is the testbed's path. What is there already is kept.
"""
DEFAULT_SOURCE = "smollm2-135m"
DEFAULT_COPIES_FROM = 0.4


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand with its own one."""
    parser = commands.add_parser("testbed", help="build a large model for measuring speed")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    build = actions.add_parser("build", help="build the testbed and its draft", description=DESCRIPTION)
    build.add_argument(
        "--source",
        metavar="MODEL",
        default=DEFAULT_SOURCE,
        help="a llama model: a name from `models list` or a file (default: %(default)s)",
    )
    build.add_argument("--embed", type=int, default=1536, metavar="N", help="width (default: %(default)s)")
    build.add_argument("--ffn", type=int, default=4608, metavar="N", help="FFN units (default: %(default)s)")
    build.add_argument(
        "--kv-heads", type=int, default=8, metavar="N", help="KV heads; query heads follow (default: %(default)s)"
    )
    build.add_argument("--copies", type=int, default=24, metavar="N", help="inserted layers (default: %(default)s)")
    place = build.add_mutually_exclusive_group()
    place.add_argument(
        "--copies-from",
        type=float,
        metavar="SHARE",
        help=f"the first layers, as a share, stay contiguous (default: {DEFAULT_COPIES_FROM})",
    )
    place.add_argument("--spread", action="store_true", help="spread the copies over the whole depth")
    build.add_argument(
        "--scale", type=float, default=0.08, metavar="S", help="of the copies' outputs (default: %(default)s)"
    )
    build.add_argument(
        "--quant", default="Q4_0", metavar="TYPE", help="llama.cpp's name: F16, Q8_0, Q4_K_M, … (default: %(default)s)"
    )
    build.add_argument("--output", metavar="FILE", help="the testbed's file (default: in the models folder)")
    build.add_argument("--force", action="store_true", help="build again what is there")
    build.add_argument("--json", action="store_true", help="print one JSON object with verifier, draft, mask and sizes")
    build.add_argument("--quiet", action="store_true", help="no progress bar")
    build.set_defaults(command=run_build)


def run_build(args: argparse.Namespace) -> int:
    """Build, and print where the files are."""
    from ..catalog.lookup import models_folder, resolve
    from ..testbed.build import build
    from ..testbed.recipe import Recipe

    share = DEFAULT_COPIES_FROM if args.copies_from is None else args.copies_from
    recipe = Recipe(
        embed=args.embed,
        ffn=args.ffn,
        kv_heads=args.kv_heads,
        copies=args.copies,
        copies_from=0.0 if args.spread else share,
        scale=args.scale,
        quant=args.quant.upper(),
    )
    source = resolve(args.source)
    name = source_name(source)
    verifier = Path(args.output).expanduser() if args.output else models_folder() / file_name(name, recipe)
    draft = verifier.with_name(f"{name}-q4_0.gguf")
    made = build(source, recipe, verifier, draft, force=args.force, progress=not (args.quiet or args.json))
    sizes = {"verifier": made.verifier.stat().st_size, "draft": made.draft.stat().st_size}
    if args.json:
        result = {"verifier": str(made.verifier), "draft": str(made.draft), "mask": str(made.mask), "sizes": sizes}
        print(json.dumps(result))
        return 0
    print(f"draft: {made.draft} ({sizes['draft'] / 1e6:.0f} MB)")
    print(f"mask: {made.mask}")
    print(f"verifier, {sizes['verifier'] / 1e6:.0f} MB:")
    print(made.verifier)
    return 0


def source_name(source: Path) -> str:
    """The registry's name of the model with this file's name, or the file's own without its ending."""
    from ..catalog.registry import registry

    names = {model.file: model.name for model in registry().models.values()}
    return names.get(source.name, source.stem)


def file_name(source: str, recipe: Recipe) -> str:
    """A file name that tells the recipe, as far as it is not the default."""
    origin = "" if source == DEFAULT_SOURCE else f"{source}-"
    place = "" if recipe.copies_from == DEFAULT_COPIES_FROM else f"from{recipe.copies_from:g}-"
    return (
        f"testbed-{origin}e{recipe.embed}-f{recipe.ffn}-k{recipe.kv_heads}-c{recipe.copies}-{place}"
        f"s{recipe.scale:g}-{recipe.quant}.gguf"
    )
