#!/usr/bin/env python3
"""Measure what the host costs outside llama_decode, by size of the vocabulary and length of the context.

    python bench/overhead.py [--vocab 49152 151936 262144] [--context 64] [--rounds 5] [--json]

The models are tiny random ones (6 layers), so passes cost next to nothing and every draft token is accepted or not by
chance; the same file drafts 4 tokens a block. The figures are milliseconds outside llama_decode, per token of `plain`
and per block of `sd` and `tiered`: medians over the rounds, in which configurations alternate. At a temperature the
sampler is top-k 40, top-p 0.95, temperature 0.8. The projection states which share of the time the host would take if a
full pass took 5, 10 or 20 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import tiny
from tiny_vocab import vocabulary

from via_sd_local.engine.engine import Engine
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.model import Model
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.verifier import Verifier

DRAFT_TOKENS = 4
MODES = (Mode.PLAIN, Mode.SD, Mode.TIERED)
SAMPLING = {
    "greedy": SamplingParams(),
    "T 0.8": SamplingParams(temperature=0.8, top_k=40, top_p=0.95, seed=1),
}
PASSES_MS = (5, 10, 20)


def write_model(folder: Path, n_vocab: int) -> Path:
    """Write a tiny random model with a vocabulary of this size, most of which is padding."""
    spec = tiny.spec("llama", n_vocab=n_vocab, n_ctx_train=1 << 17)
    return tiny.write(folder / f"{n_vocab}.gguf", spec, vocab=vocabulary(900).padded(n_vocab))


def measure(engine: Engine, context: int, tokens: int, sampling: SamplingParams) -> dict[str, float]:
    """Generate, and return milliseconds outside llama_decode per token and per block, without the first token."""
    engine.reset()
    prompt = [1] + [300 + i % 500 for i in range(context - 1)]
    steps = engine.generate(prompt, max_tokens=tokens, sampling=sampling, stops_at_end=False)
    next(steps)  # the prompt
    before = engine.stats.overhead_seconds
    emitted = sum(len(step.tokens) for step in steps)
    stats = engine.stats
    milliseconds = 1e3 * (stats.overhead_seconds - before)
    return {"token": milliseconds / emitted, "block": milliseconds / max(stats.blocks, 1)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, nargs="+", default=[49_152, 151_936, 262_144])
    parser.add_argument("--context", type=int, nargs="+", default=[64], help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=60, help="length of each answer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)

    rows: dict[tuple[int, int], dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for n_vocab in args.vocab:
            for context in args.context:
                rows[n_vocab, context] = table_row(write_model(Path(folder), n_vocab), context, args)
    if args.json:
        print(json.dumps([{"vocab": v, "context": c, **row} for (v, c), row in rows.items()], indent=1))
        return 0
    columns = list(next(iter(rows.values())))
    print(f"milliseconds outside llama_decode, medians of {args.rounds} rounds of {args.tokens} tokens, 1 thread")
    print(f"| vocabulary | context | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 2) + "|")
    for (n_vocab, context), row in rows.items():
        print(f"| {n_vocab:,} | {context:,} | {' | '.join(f'{row[column]:.2f}' for column in columns)} |")
    print()
    for milliseconds in PASSES_MS:
        worst = {column: max(row[column] for row in rows.values()) for column in columns}
        shares = ", ".join(f"{column} {value / (value + milliseconds):.0%}" for column, value in worst.items())
        print(f"share of the host where a full pass takes {milliseconds} ms (largest row): {shares}")
    return 0


def table_row(path: Path, context: int, args: argparse.Namespace) -> dict[str, float]:
    """Return the medians of every mode and sampler, by column name."""
    found: dict[str, list[float]] = defaultdict(list)
    n_ctx = context + args.tokens + 16
    with ExitStack() as stack:
        model = stack.enter_context(closing(Model(path)))
        engines: dict[Mode, Engine] = {}
        for mode in MODES:
            mask = LayerMask.parse("2-3", model.n_layer) if mode is Mode.TIERED else None
            verifier = stack.enter_context(closing(Verifier(model, n_ctx=n_ctx, mask=mask, n_threads=1)))
            drafter: Any = None
            if mode is not Mode.PLAIN:
                drafter = stack.enter_context(closing(ModelDrafter(model, model, n_ctx=n_ctx, n_threads=1)))
            engines[mode] = Engine(verifier, drafter, Policy(mode, DRAFT_TOKENS if drafter else None))
        for _ in range(args.rounds):
            for label, sampling in SAMPLING.items():
                for mode, engine in engines.items():
                    unit = "token" if mode is Mode.PLAIN else "block"
                    result = measure(engine, context, args.tokens, sampling)
                    found[f"{mode.value}, {label}, a {unit}"].append(result[unit])
    return {column: statistics.median(values) for column, values in found.items()}


if __name__ == "__main__":
    sys.exit(main())
