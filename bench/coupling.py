#!/usr/bin/env python3
"""Measure how often drafts are accepted at a temperature, by the method of drawing and checking them.

    python bench/coupling.py --verifier V --draft D [--temperatures 0.7 1.0] [--top-k 0 40] [--prompts N] [--tokens N]

Texts are sampled from the verifier, and both models' distributions are compared at each position: the draft's most
probable token against the target's draw; speculative sampling (accept with probability min(1, q/p)); two draws with the
same random numbers. Speed is not measured.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import closing

import numpy as np
from prompts import tasks

from via_sd_local.catalog.lookup import resolve
from via_sd_local.engine.engine import Engine
from via_sd_local.runtime.chat_format import ChatFormat
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.sampling.noise import Noise
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.tiers.verifier import Verifier

RACES = 10  # pairs of draws per position


def probabilities(logits: np.ndarray, temperature: float, top_k: int) -> np.ndarray:
    """Return the distributions that tokens are drawn from, `[n, n_vocab]`; `top_k` 0 keeps all tokens."""
    scaled = (logits - logits.max(axis=1, keepdims=True)).astype(np.float64) / temperature
    if top_k:
        scaled[scaled < np.partition(scaled, -top_k, axis=1)[:, [-top_k]]] = -np.inf
    weights = np.exp(scaled)
    rows: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    return rows


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verifier", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.7, 1.0])
    parser.add_argument("--top-k", type=int, nargs="+", default=[0, 40])
    parser.add_argument("--prompts", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(argv)

    chosen = [task["prompt"] for task in tasks(args.prompts)]
    noise = Noise(0)
    print("| temperature | top-k | positions | best against draw | speculative sampling | same random numbers |")
    print("|---|---|---|---|---|---|")
    with (
        closing(Model(resolve(args.verifier))) as model,
        closing(Model(resolve(args.draft))) as draft,
        closing(Verifier(model, n_ctx=512, n_threads=args.threads)) as verifier,
        closing(Context(draft, n_ctx=512, n_threads=args.threads)) as drafting,
    ):
        form, engine = ChatFormat(model), Engine(verifier)
        for temperature in args.temperatures:
            targets, drafts = [], []
            for prompt in chosen:
                tokens = form.tokens([{"role": "user", "content": prompt}])
                engine.reset()
                steps = engine.generate(tokens, max_tokens=args.tokens, sampling=SamplingParams(temperature, seed=1))
                text = [token for step in steps for token in step.tokens]
                for context, rows in ((verifier.context, targets), (drafting, drafts)):
                    context.clear()
                    rows.append(context.decode([*tokens, *text[:-1]], 0, len(text)).copy())
            for top_k in args.top_k:
                q, p = (probabilities(np.concatenate(rows), temperature, top_k) for rows in (targets, drafts))
                n = range(len(q))
                best = q[n, p.argmax(axis=1)].mean()
                speculative = np.minimum(p, q).sum(axis=1).mean()
                races = [noise.winner(k, p[i]) == noise.winner(k, q[i]) for i in n for k in range(i, i + RACES)]
                print(f"| {temperature} | {top_k} | {len(q)} | {best:.3f} | {speculative:.3f} | {np.mean(races):.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
