#!/usr/bin/env python3
"""Measure speed and fidelity of the modes, which alternate in one process on distinct prompts.

    python bench/modes.py --verifier V --draft D [--mask M] [--configs plain sd sd:3 sd:7 tiered:joint:0.5,0.5 …]

A configuration is a mode, optionally followed by a fixed draft length, a rule, or both: `sd`, `sd:7`,
`tiered:ratio:0.7,0.28`, `tiered:4:joint:0.4,0.4`, `viasd`; a suffix `@0.05` sets the deviation budget, as in
`lenient@0.05`. Caches are emptied before every run, and prefill is excluded. Agreement is the share of emitted tokens
that are the full model's own choice, by teacher forcing; `plain` stays below 1 because batches of other shapes round
differently.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from contextlib import closing
from typing import Any

import numpy as np
from prompts import tasks

from via_sd_local.catalog.lookup import resolve
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import DEFAULT_RULE, PAPER_RULE, Rule
from via_sd_local.engine.measure import measure
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.engine.stats import Stats
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.chat_format import ChatFormat
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.tiers.drafter import Drafter
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.prompt_lookup import PromptLookup
from via_sd_local.tiers.verifier import Verifier


def policy_of(config: str) -> Policy:
    """Parse a configuration; ValueError if it has no meaning."""
    config, _, budget = config.partition("@")
    mode, _, rest = config.partition(":")
    length, _, rule = (
        rest.partition(":") if rest[:1].isdigit() and "," not in rest.partition(":")[0] else ("", "", rest)
    )
    deviation = float(budget) if budget else None
    if Mode(mode) is Mode.VIASD:
        rule_of = Rule.parse(rule) if rule else PAPER_RULE
        return Policy.viasd(int(length) if length else None, rule_of, max_deviation=deviation)
    rule_of = Rule.parse(rule) if rule else DEFAULT_RULE
    return Policy(Mode(mode), int(length) if length else None, rule_of, max_deviation=deviation)


def agreement(reference: Context, prompt: list[int], emitted: list[int]) -> float:
    """Return the share of emitted tokens that are the reference model's argmax, given the tokens before them."""
    reference.clear()
    logits = reference.decode([*prompt, *emitted[:-1]], 0, len(emitted))
    return float((logits.argmax(axis=1) == np.array(emitted)).mean())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verifier", required=True)
    parser.add_argument("--draft", help="a draft model (default: prompt lookup)")
    parser.add_argument("--mask", default="")
    parser.add_argument("--configs", nargs="+", default=["plain", "sd", "sd:3", "sd:7", "sd:15"])
    parser.add_argument("--prompts", type=int, default=8, help="number of tasks out of 20, evenly chosen")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=1, help="runs per prompt, of which the fastest counts")
    parser.add_argument("--n-ctx", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fidelity", action="store_true", help="also measure agreement by teacher forcing")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)

    with closing(Model(resolve(args.verifier))) as model:
        form = ChatFormat(model)
        mask = LayerMask.parse(args.mask, model.n_layer)
        verifier = Verifier(model, n_ctx=args.n_ctx, mask=mask, n_threads=args.threads)
        draft = Model(resolve(args.draft)) if args.draft else None
        drafter: Drafter = (
            ModelDrafter(draft, model, n_ctx=args.n_ctx, n_threads=args.threads) if draft else PromptLookup()
        )
        costs = measure(verifier, [drafter])
        engines = {config: Engine(verifier, drafter, policy_of(config), costs) for config in args.configs}
        reference = Context(model, n_ctx=args.n_ctx, n_threads=args.threads) if args.fidelity else None
        rows: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        for number, task in enumerate(tasks(args.prompts)):
            prompt = form.tokens([{"role": "user", "content": task["prompt"]}])
            order = args.configs[number % len(args.configs) :] + args.configs[: number % len(args.configs)]
            fastest: dict[str, tuple[float, Stats, list[int]]] = {}
            for config in order * args.rounds:
                engine = engines[config]
                engine.reset()
                steps = engine.generate(prompt, max_tokens=args.tokens)
                emitted = [token for step in steps for token in step.tokens]
                speed = engine.stats.tokens_per_second
                if speed is not None and (config not in fastest or speed > fastest[config][0]):
                    fastest[config] = (speed, engine.stats, emitted)
            for config, (speed, stats, emitted) in fastest.items():
                row = rows[config]
                row["speed"].append((task["kind"], speed))
                row["overhead"].append(stats.overhead_seconds / stats.seconds)
                row["drafted"].append(stats.drafted)
                row["accepted"].append(stats.accepted)
                row["length"].append(stats.acceptance_length)
                if reference is not None:
                    row["agreement"].append(agreement(reference, prompt, emitted))
        report = {config: summarise(row, rows.get("plain")) for config, row in rows.items()}
        if args.json:
            print(json.dumps({"costs": costs.to_json(), "modes": report}, indent=2))
        else:
            print_table(args, costs.to_json(), report)
        for part in (drafter, verifier, *filter(None, [reference, draft])):
            part.close()
    return 0


def summarise(row: dict[str, list[Any]], plain: dict[str, list[Any]] | None) -> dict[str, Any]:
    """Return medians over prompts, and of the ratios to plain per prompt."""
    speeds = [speed for _, speed in row["speed"]]
    result: dict[str, Any] = {
        "tokens_per_second": statistics.median(speeds),
        "overhead": statistics.median(row["overhead"]),
    }
    if plain and len(plain["speed"]) == len(speeds):
        ratios = sorted(
            (speed / base, kind) for (kind, speed), (_, base) in zip(row["speed"], plain["speed"], strict=True)
        )
        result |= {"median_ratio": statistics.median(r for r, _ in ratios), "worst": ratios[0]}
    drafted = sum(row["drafted"])
    result["acceptance"] = sum(row["accepted"]) / drafted if drafted else None
    result["tokens_per_block"] = statistics.mean(row["length"])
    if row["agreement"]:
        result["agreement"] = statistics.mean(row["agreement"])
    return result


def print_table(args: argparse.Namespace, costs: dict[str, Any], report: dict[str, Any]) -> None:
    print(
        f"{args.verifier}, draft {args.draft}, {args.threads} threads, {args.prompts} prompts of {args.tokens} tokens"
    )
    for kind, row in costs.items():
        print(f"{kind} pass, ms: " + ", ".join(f"{size}: {1e3 * seconds:.1f}" for size, seconds in row.items()))
    print(
        "| configuration | tokens/s | x plain, median | worst prompt | accepted | tokens per block "
        "| outside llama_decode | agreement |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for config, row in report.items():
        ratio = f"{row['median_ratio']:.2f}" if "median_ratio" in row else ""
        worst = f"{row['worst'][0]:.2f} ({row['worst'][1]})" if "worst" in row else ""
        accepted = f"{row['acceptance']:.0%}" if row["acceptance"] is not None else ""
        agreed = f"{row['agreement']:.3f}" if "agreement" in row else ""
        print(
            f"| {config} | {row['tokens_per_second']:.1f} | {ratio} | {worst} | {accepted} "
            f"| {row['tokens_per_block']:.2f} | {row['overhead']:.1%} | {agreed} |"
        )


if __name__ == "__main__":
    sys.exit(main())
