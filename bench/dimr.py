"""Compare mask searches (guided, paper, random) at the same budget, and random masks that skip equally many sublayers.

    python bench/dimr.py --verifier FILE.gguf --evaluations 300 --skip-ratio 0.44 [--planted MASK] [--json]

Searches use the search part of the calibration text; the table shows the held-out part, which no search has seen.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from via_sd_local.calibration.dimr.answers import RecordedAnswer, answers, from_json, to_json
from via_sd_local.calibration.dimr.evaluation import Evaluator
from via_sd_local.calibration.dimr.objective import OBJECTIVES, Score
from via_sd_local.calibration.dimr.search import SearchBudget, SearchProgress, SearchResult, search
from via_sd_local.calibration.dimr.space import Space
from via_sd_local.calibration.dimr.speed import Shares, speed_worth
from via_sd_local.calibration.dimr.texts import load_texts, split
from via_sd_local.calibration.plan import STRATEGIES
from via_sd_local.catalog.lookup import resolve
from via_sd_local.errors import ViaSdError
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.model import Model
from via_sd_local.tiers.verifier import Verifier


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--verifier", required=True, metavar="MODEL", help="a GGUF file or a name")
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), choices=STRATEGIES)
    parser.add_argument("--evaluations", type=int, metavar="N", help="budget of each search")
    parser.add_argument("--minutes", type=float, metavar="M", help="budget of each search")
    parser.add_argument("--skip-ratio", type=float, metavar="R", help="share of sublayers to skip (default: any)")
    parser.add_argument("--objective", default="kl", choices=OBJECTIVES, help="the loss (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=28, help="tokens per searched answer (default: %(default)s)")
    parser.add_argument("--held-out", type=int, default=64, help="tokens per held-out answer (default: %(default)s)")
    parser.add_argument("--text", metavar="FILE", help="use these prompts instead of the built-in ones")
    parser.add_argument("--planted", metavar="MASK", help="a mask to compare with, also at its skip ratio")
    parser.add_argument("--random-masks", type=int, default=20, help="for each search (default: %(default)s)")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--logs", type=Path, metavar="DIR", help="folder of answers and logs to resume from")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    try:
        rows = run(args)
    except (ViaSdError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(rows) if args.json else table(rows))
    return 0


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the searches, and return the rows of the table."""
    path = resolve(args.verifier)
    with closing(Model(path)) as model:
        searched, held_out = texts(args, model)
        planted = None if args.planted is None else LayerMask.parse(args.planted, model.n_layer)
        results = {name: find(args, name, model, path, searched) for name in args.strategies}
        with closing(Evaluator(model, held_out, n_threads=args.threads)) as evaluator:
            rows = [] if planted is None else [row_of("planted", planted, evaluator.score(planted))]
            for name, result in results.items():
                facts = {
                    "loss": result.score.loss(result.objective),
                    "evaluations": result.evaluations,
                    "seconds": round(result.seconds, 1),
                }
                rows.append(row_of(name, result.mask, evaluator.score(result.mask), **facts))
                if planted is not None and len(result.mask) != len(planted):
                    same = [point for point in result.front if len(point.mask) >= len(planted)]
                    for point in same[:1]:
                        rows.append(row_of(f"{name}, front", point.mask, evaluator.score(point.mask)))
            for name, result in results.items():
                rows += random_rows(f"random masks like {name}'s", len(result.mask), evaluator, args)
    return rows


def texts(args: argparse.Namespace, model: Model) -> tuple[list[RecordedAnswer], list[RecordedAnswer]]:
    """Return the verifier's answers to the search part and the held-out part, from the folder of logs if possible."""
    parts = split(load_texts(args.text))
    about = {
        "model": [model.path.name, model.path.stat().st_size],
        "tokens": [args.tokens, args.held_out],
        "prompts": [prompt.text for part in parts for prompt in part],
    }
    kept = args.logs / "answers.json" if args.logs is not None else None
    if kept is not None and kept.exists():
        data = json.loads(kept.read_text(encoding="utf-8"))
        if data["about"] != about:
            raise ValueError(f"{kept} has another model, text or number of tokens; give another folder with --logs")
        return from_json(data["search"]), from_json(data["held_out"])
    with closing(Verifier(model, n_ctx=min(2048, model.n_ctx_train), n_threads=args.threads)) as verifier:
        recorded = [answers(verifier, part, n) for part, n in zip(parts, (args.tokens, args.held_out), strict=True)]
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        data = {"about": about, "search": to_json(recorded[0]), "held_out": to_json(recorded[1])}
        kept.write_text(json.dumps(data), encoding="utf-8")
    return recorded[0], recorded[1]


def find(args: argparse.Namespace, name: str, model: Model, path: Path, searched: list[RecordedAnswer]) -> SearchResult:
    """Run one search strategy, with its progress on standard error."""

    def show(progress: SearchProgress) -> None:
        best = progress.best
        text = "" if best is None else f"{len(best.mask)} skipped, agreement {best.score.agreement:.3f}"
        print(f"\r{name}: {progress.evaluations} in {progress.seconds:.0f} s, {text}   ", end="", file=sys.stderr)

    with closing(Evaluator(model, searched, n_threads=args.threads)) as evaluator:
        result = search(
            evaluator.score,
            model.n_layer,
            SearchBudget(args.evaluations, args.minutes),
            worth=speed_worth(Shares.of(path)),
            quick_score=evaluator.quick_score,
            quick_cost=evaluator.quick_cost,
            strategy=name,
            skip_ratio=args.skip_ratio,
            objective=args.objective,
            seed=args.seed,
            log=None if args.logs is None else args.logs / f"{name}-{args.seed}.jsonl",
            about={"model": path.name, "size": path.stat().st_size, "tokens": len(evaluator)},
            progress=show if sys.stderr.isatty() else None,
        )
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return result


def row_of(name: str, mask: LayerMask, score: Score, **facts: Any) -> dict[str, Any]:
    """Return the row of one mask; `facts` are further columns."""
    return {
        "name": name,
        "mask": str(mask),
        "skipped": len(mask),
        "agreement": score.agreement,
        "kl": score.kl,
        "tokens": score.tokens,
        **facts,
    }


def random_rows(name: str, count: int, evaluator: Evaluator, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows for the mean and the best of random masks with `count` skipped sublayers."""
    space = Space(evaluator.model.n_layer, count, count)
    rng = np.random.default_rng(args.seed + 1)
    scores: list[tuple[Score, LayerMask]] = []
    for _ in range(args.random_masks):
        mask = space.draw(rng)
        with suppress(ValueError):  # llama.cpp refuses some masks
            scores.append((evaluator.score(mask), mask))
    if not scores:
        return []
    best, mask = max(scores, key=lambda pair: pair[0].agreement)
    mean = {key: float(np.mean([getattr(score, key) for score, _ in scores])) for key in ("agreement", "kl")}
    return [
        {"name": f"{name}, mean of {len(scores)}", "skipped": count, "tokens": best.tokens, **mean},
        row_of(f"{name}, best", mask, best),
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Format the rows as a Markdown table, with the masks below it."""
    lines = [
        "| mask | skipped | agreement | KL | search loss | evaluations | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        loss = f"{row['loss']:.4f}" if "loss" in row else ""
        lines.append(
            f"| {row['name']} | {row['skipped']} | {row['agreement']:.4f} | {row['kl']:.4f} | {loss} | "
            f"{row.get('evaluations', '')} | {row.get('seconds', '')} |"
        )
    masks = [f"{row['name']}: {row['mask']}" for row in rows if "mask" in row]
    return "\n".join([*lines, "", f"{rows[0]['tokens']} held-out tokens", *masks])


if __name__ == "__main__":
    sys.exit(main())
