#!/usr/bin/env python3
"""Measure what each mode costs outside llama_decode: overhead per token, time to first token, peak memory.

    python bench/foundation.py [--verifier NAME] [--mask LAYERS] [--rounds N] [--threads N] [--json]

The modes alternate, each run in its own process, on distinct prompts; medians are printed. The verifier also serves as
the draft model (no smaller model with its vocabulary is available), so nearly every draft is accepted: speeds mean
nothing here.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from typing import Any

PROMPTS = [
    "Write a short story about a lighthouse.",
    "Explain how rain forms, step by step.",
    "List ten words that rhyme with day.",
    "Describe a walk through a quiet city at night.",
    "Write a Python function that counts the vowels of a text.",
    "Summarise the life of a bee in five sentences.",
    "Give three reasons to learn an instrument.",
]
LENGTH = ["--draft-tokens", "3"]
RUNS: dict[str, list[str]] = {
    "plain": ["--mode", "plain"],
    "sd, lookup": ["--mode", "sd", "--drafter", "lookup", *LENGTH],
    "sd": ["--mode", "sd", "--draft", "VERIFIER", *LENGTH],
    "exact": ["--mode", "exact", "--draft", "VERIFIER", "--mask", "MASK", *LENGTH],
    "tiered": ["--mode", "tiered", "--draft", "VERIFIER", "--mask", "MASK", *LENGTH],
}


def measure(arguments: list[str]) -> dict[str, Any]:
    """Run `complete` in its own process; return its JSON and, as `peak_mib`, the process's peak memory."""
    code = (
        "import resource, sys; from via_sd_local.cli import main; status = main(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(status)"
    )
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(run.stderr)
    result: dict[str, Any] = json.loads(run.stdout)
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes on macOS, in KiB elsewhere
    result["peak_mib"] = int(run.stderr.split()[-1]) * unit / 2**20
    return result


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verifier", default="smollm2-135m")
    parser.add_argument("--mask", default="21-22,f25")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)

    if not 1 <= args.rounds <= len(PROMPTS):
        parser.error(f"--rounds is {args.rounds}; there are {len(PROMPTS)} prompts, and none is used twice")
    rows: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for prompt in PROMPTS[: args.rounds]:
        for name, options in RUNS.items():
            options = [{"VERIFIER": args.verifier, "MASK": args.mask}.get(word, word) for word in options]
            common = ["complete", "--json", "--verifier", args.verifier, "--prompt", prompt, "--n-ctx", "1024"]
            sizes = ["--max-tokens", str(args.tokens), "--threads", str(args.threads)]
            result = measure([*common, *sizes, *options])
            stats = result["stats"]
            row = rows[name]
            row["overhead_share"].append(stats["overhead_seconds"] / stats["seconds"])
            row["overhead_ms_per_token"].append(1e3 * stats["overhead_seconds"] / stats["completion_tokens"])
            row["first_token_seconds"].append(stats["first_token_seconds"])
            row["peak_mib"].append(result["peak_mib"])

    table: dict[str, dict[str, float]] = {
        name: {key: statistics.median(values) for key, values in row.items()} for name, row in rows.items()
    }
    for row in table.values():
        row["first_token_ratio"] = row["first_token_seconds"] / table["plain"]["first_token_seconds"]
        row["peak_ratio_to_sd"] = row["peak_mib"] / table["sd"]["peak_mib"]
    if args.json:
        print(json.dumps(table, indent=2))
        return 0
    print(f"{args.verifier}, mask {args.mask}, {args.threads} threads, medians of {args.rounds} prompts")
    print("| mode | outside llama_decode | per token | first token, x plain | peak memory | x sd |")
    print("|---|---|---|---|---|---|")
    for name, row in table.items():
        print(
            f"| {name} | {row['overhead_share']:.1%} | {row['overhead_ms_per_token']:.2f} ms "
            f"| {row['first_token_ratio']:.2f} | {row['peak_mib']:.0f} MiB | {row['peak_ratio_to_sd']:.3f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
