#!/usr/bin/env python3
"""Measure what a full, a slim and a resumed pass cost by the number of tokens, in milliseconds.

    python bench/staircase.py --verifier V [--mask M] [--sizes 1-16,24,32,48,64] [--threads N] [--gpu-layers N …]
    python bench/staircase.py --verifier V --loopback 2      # compare with RPC servers started here

With --loopback, the model is also split across RPC servers on this machine, and the local and the split model alternate
pass by pass, so that both run under the same conditions. Values are medians; every pass starts at the same position.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

from via_sd_local.catalog.lookup import resolve
from via_sd_local.cli.placement_options import VERIFIER, add_placement, placement_from
from via_sd_local.errors import ModelError
from via_sd_local.mask import LayerMask
from via_sd_local.runtime import rpc
from via_sd_local.runtime.model import Model
from via_sd_local.runtime.rpc_server import server_program
from via_sd_local.tiers.verifier import Verifier

DEPTH = 64  # tokens before every pass


def parse_sizes(text: str) -> list[int]:
    """Return the numbers of a list such as `1-4,8`."""
    sizes: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        sizes += range(int(first), int(last or first) + 1)
    return sizes


@contextmanager
def loopback_servers(n: int, threads: int) -> Iterator[list[str]]:
    """Run `n` RPC servers of this build on 127.0.0.1; yields the `host:port` of each."""
    with ExitStack() as stack:
        endpoints: list[str] = []
        for _ in range(n):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            command = [str(server_program()), "--host", "127.0.0.1", "--port", str(port), "--threads", str(threads)]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL))
            stack.callback(process.kill)
            endpoints.append(f"127.0.0.1:{port}")
        for endpoint in endpoints:
            for _attempt in range(100):
                try:
                    rpc.greet(endpoint)
                    break
                except ModelError:
                    time.sleep(0.1)
        yield endpoints


def passes(verifier: Verifier, size: int) -> dict[str, float]:
    """Return the seconds of one pass of each kind that this verifier supports, by kind."""
    seconds: dict[str, float] = {}
    if verifier.n_full != DEPTH:
        verifier.reset()
        verifier.full([0] * DEPTH, 1)

    def record(kind: str, _tokens: int, took: float) -> None:
        seconds[kind] = took

    verifier.full([0] * size, size, recorder=record)
    verifier.rewind(DEPTH)
    if verifier.mask:
        verifier.slim([0] * size, recorder=record)
        if verifier.why_no_resume is None:
            verifier.full([], size, recorder=record)
        verifier.rewind(DEPTH)
    return seconds


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verifier", required=True)
    parser.add_argument("--mask", default="")
    parser.add_argument("--sizes", type=parse_sizes, default="1-8,12,16,24,32,48,64")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--loopback", type=int, default=0, metavar="N", help="compare with N RPC servers on 127.0.0.1")
    add_placement(parser)
    args = parser.parse_args(argv)
    placement = placement_from(args, VERIFIER)
    with ExitStack() as stack:
        placements = {"": placement}
        if args.loopback:
            servers = stack.enter_context(loopback_servers(args.loopback, args.threads))
            placements[f" on {args.loopback} servers"] = replace(placement, rpc_servers=tuple(servers))
        verifiers: dict[str, Verifier] = {}
        for name, place in placements.items():
            model = stack.enter_context(closing(Model(resolve(args.verifier), place)))
            mask = LayerMask.parse(args.mask, model.n_layer)
            n_ctx = DEPTH + max(args.sizes)
            verifier = Verifier(model, n_ctx=n_ctx, mask=mask, n_threads=args.threads)
            verifiers[name] = stack.enter_context(closing(verifier))
            if verifier.why_no_resume not in (None, "no mask"):
                print(f"no resume: {verifier.why_no_resume}")
        print(f"{args.verifier}, mask {args.mask or 'none'}, {args.threads} threads, medians of {args.repeat}, ms")
        header: list[str] = []
        for size in args.sizes:
            seen: dict[str, list[float]] = defaultdict(list)
            for turn in range(args.repeat + 1):
                for name, verifier in verifiers.items():
                    for kind, seconds in passes(verifier, size).items():
                        if turn:  # the first turn is a warm-up
                            seen[kind + name].append(1e3 * seconds)
            if not header:
                header = list(seen)
                print("| tokens | " + " | ".join(header) + " |\n|" + "---|" * (len(header) + 1))
            cells = [f"{statistics.median(seen[kind]):.1f}" for kind in header]
            print(f"| {size} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
