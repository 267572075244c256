"""Measure what streaming through `Llama` adds to the bare engine, in milliseconds per token, by length of the answer.

Both generate the same greedy tokens from the same prompt, in turn and from empty caches, with a new prompt each time.
The time in llama_decode is subtracted, and the medians of the rest are compared. A tiny random model is enough, since
the text does not matter.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import tiny

from via_sd_local import Llama
from via_sd_local.sampling.params import SamplingParams

PLACES = ("sea", "land", "river", "sky", "city", "wood", "hill", "road", "field", "shore")
LIMIT = 0.2  # ms per token


def decode_seconds(stats: dict[str, Any]) -> float:
    """Return the seconds that the engine spent in llama_decode."""
    return float(stats["prefill_seconds"] + sum(kind["seconds"] for kind in stats["passes"].values()))


def measure(llm: Llama, run: Callable[[str], None], text: str) -> float:
    """Return the wall-clock seconds of a run outside llama_decode."""
    llm.reset()
    started = time.perf_counter()
    run(text)
    return time.perf_counter() - started - decode_seconds(llm.last_stats)


def prompts() -> Iterator[str]:
    """Yield distinct prompts; SystemExit when they are used up."""
    for first, second in permutations(PLACES, 2):
        yield f"the {first} and the {second}"
    raise SystemExit(f"all {len(PLACES) * (len(PLACES) - 1)} prompts are used up; ask for fewer repeats")


def compare(llm: Llama, texts: Sequence[str], n: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return the medians over these prompts, for answers of `n` tokens."""
    ends = dict.fromkeys(llm._runner.model.eog, -1e9)  # type: ignore[union-attr]
    engine = llm._runner.engine  # type: ignore[union-attr]
    bias = tuple(ends.items())

    def bare(text: str) -> None:
        prompt = llm.tokenize(text.encode())
        for _ in engine.generate(prompt, max_tokens=n, sampling=SamplingParams(logit_bias=bias)):
            pass

    def streamed(text: str) -> None:
        for _ in llm(text, max_tokens=n, temperature=0, stream=True, logit_bias=ends, **options):
            pass

    times: dict[str, list[float]] = {"engine": [], "stream": []}
    for text in texts:
        times["engine"].append(measure(llm, bare, text))
        times["stream"].append(measure(llm, streamed, text))
    engine_ms, stream_ms = (statistics.median(times[name]) / n * 1e3 for name in ("engine", "stream"))
    return {"tokens": n, "engine_ms": engine_ms, "stream_ms": stream_ms, "added_ms": stream_ms - engine_ms}


def main(argv: list[str] | None = None) -> int:
    """Print the table; returns 1 if streaming adds more than `LIMIT`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", metavar="FILE", help="a .gguf file or a name (default: a tiny random model)")
    parser.add_argument("--tokens", type=int, nargs="+", default=[50, 4000], help="lengths of the answers")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--stop", nargs="*", default=["@@@", "%%%"], help="stop strings to look for")
    parser.add_argument("--drafter", choices=["none", "lookup"], default="none")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        path = args.model or str(tiny.write(Path(folder) / "tiny.gguf", tiny.spec("llama", n_ctx_train=8192)))
        llm = Llama(
            path,
            n_ctx=max(args.tokens) + 64,
            n_threads=1,
            n_threads_batch=1,
            verbose=False,
            drafter=args.drafter,
            draft_tokens=3 if args.drafter == "lookup" else None,
        )
        fresh = prompts()
        compare(llm, [next(fresh)], 50, {})  # warm up
        rows = [compare(llm, [next(fresh) for _ in range(args.repeats)], n, {"stop": args.stop}) for n in args.tokens]
        llm.close()
    if args.json:
        print(json.dumps(rows))
    else:
        print("tokens  engine ms/token  stream ms/token  added")
        for row in rows:
            print(f"{row['tokens']:6}  {row['engine_ms']:15.4f}  {row['stream_ms']:15.4f}  {row['added_ms']:.4f}")
    return int(any(row["added_ms"] > LIMIT for row in rows))


if __name__ == "__main__":
    sys.exit(main())
