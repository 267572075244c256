#!/usr/bin/env python3
"""Measure what flash attention costs on this machine, by the length of the text and the tokens per pass.

    python bench/attention.py MODEL [--threads 1] [--depths 64 512 1024]

Prints milliseconds with and without it: prompts once, later passes as the minimum of 7, alternating.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack, closing

from via_sd_local.catalog.lookup import resolve
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.runtime.placement import Placement

SIZES = (1, 4, 8, 16)
ROUNDS = 7  # passes of each kind, of which the fastest counts


def milliseconds(context: Context, tokens: int, start: int, rows: int) -> float:
    """Time one pass over `tokens` tokens at position `start`."""
    started = time.perf_counter()
    context.decode([7] * tokens, start, rows)
    return 1000 * (time.perf_counter() - started)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--depths", type=int, nargs="+", default=[64, 512, 1024])
    args = parser.parse_args(argv)
    path, n_ctx = resolve(args.model), max(args.depths) + max(SIZES)
    print("| tokens before | tokens | on, ms | off, ms |\n|---|---|---|---|")
    with ExitStack() as stack:
        contexts = []
        for flash_attn in ("on", "off"):
            model = stack.enter_context(closing(Model(path, Placement(flash_attn=flash_attn))))
            contexts.append(stack.enter_context(closing(Context(model, n_ctx=n_ctx, n_threads=args.threads))))
        for depth in args.depths:
            for context in contexts:
                context.clear()
            print(f"| 0 | {depth} | " + " | ".join(f"{milliseconds(c, depth, 0, 1):.0f}" for c in contexts) + " |")
            for size in SIZES:
                best = [float("inf")] * len(contexts)
                for _ in range(ROUNDS):
                    for i, context in enumerate(contexts):
                        if not context.remove(depth):
                            raise SystemExit(f"{path.name} cannot be rolled back (it is recurrent or hybrid)")
                        best[i] = min(best[i], milliseconds(context, size, depth, size))
                print(f"| {depth} | {size} | " + " | ".join(f"{value:.0f}" for value in best) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
