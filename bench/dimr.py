"""The ablation of the mask: guided, paper and random search at one budget, and random masks that skip as much.

    python bench/dimr.py --verifier FILE.gguf --evaluations 300 --skip-ratio 0.44 [--planted MASK] [--json]

Searches see the search part of the calibration text; the table is of the held-out part, which no search has seen.
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
from via_sd_local.calibration.dimr.search import STRATEGIES, SearchBudget, SearchProgress, SearchResult, search
from via_sd_local.calibration.dimr.space import Space
from via_sd_local.calibration.dimr.speed import Shares, speed_worth
from via_sd_local.calibration.dimr.texts import load_texts, split
from via_sd_local.catalog.catalog import resolve
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
    parser.add_argument("--skip-ratio", type=float, metavar="R", help="masks skip this share (default: any)")
    parser.add_argument("--objective", default="kl", choices=OBJECTIVES, help="the loss (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=28, help="of each answer searched on (default: %(default)s)")
    parser.add_argument("--held-out", type=int, default=64, help="of each answer held out (default: %(default)s)")
    parser.add_argument("--text", metavar="FILE", help="your own prompts instead of the shipped ones")
    parser.add_argument("--planted", metavar="MASK", help="a mask to compare with; fronts are read at its ratio, too")
    parser.add_argument("--random-masks", type=int, default=20, help="per found mask (default: %(default)s)")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep answers and logs here, and resume")
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
    path = resolve(args.verifier)
    with closing(Model(path)) as model:
        searched, held_out = texts(args, model)
        planted = None if args.planted is None else LayerMask.parse(args.planted, model.n_layer)
        found = {name: find(args, name, model, path, searched) for name in args.strategies}
        with closing(Evaluator(model, held_out, n_threads=args.threads)) as evaluator:
            rows = [] if planted is None else [row("planted", planted, evaluator.score(planted))]
            for name, result in found.items():
                facts = {
                    "loss": result.score.loss(result.objective),
                    "evaluations": result.evaluations,
                    "seconds": round(result.seconds, 1),
                }
                rows.append(row(name, result.mask, evaluator.score(result.mask), **facts))
                if planted is not None and len(result.mask) != len(planted):
                    same = [point for point in result.front if len(point.mask) >= len(planted)]
                    for point in same[:1]:
                        rows.append(row(f"{name}, front", point.mask, evaluator.score(point.mask)))
            for name, result in found.items():
                rows += random_rows(f"random masks like {name}'s", len(result.mask), evaluator, args)
    return rows


def texts(args: argparse.Namespace, model: Model) -> tuple[list[RecordedAnswer], list[RecordedAnswer]]:
    """The verifier's answers to both parts, from the folder of logs if they are there."""
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
            raise ValueError(f"{kept} is of another model, text or --tokens; give another folder with --logs")
        return from_json(data["search"]), from_json(data["held_out"])
    with closing(Verifier(model, n_ctx=min(2048, model.n_ctx_train), n_threads=args.threads)) as verifier:
        made = [answers(verifier, part, n) for part, n in zip(parts, (args.tokens, args.held_out), strict=True)]
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        data = {"about": about, "search": to_json(made[0]), "held_out": to_json(made[1])}
        kept.write_text(json.dumps(data), encoding="utf-8")
    return made[0], made[1]


def find(args: argparse.Namespace, name: str, model: Model, path: Path, searched: list[RecordedAnswer]) -> SearchResult:
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


def row(name: str, mask: LayerMask, score: Score, **facts: Any) -> dict[str, Any]:
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
    """The mean and the best of random masks with so many skipped sublayers."""
    space = Space(evaluator.model.n_layer, count, count)
    rng = np.random.default_rng(args.seed + 1)
    scores: list[tuple[Score, LayerMask]] = []
    for _ in range(args.random_masks):
        mask = space.draw(rng)
        with suppress(ValueError):  # refused
            scores.append((evaluator.score(mask), mask))
    if not scores:
        return []
    best, mask = max(scores, key=lambda pair: pair[0].agreement)
    mean = {key: float(np.mean([getattr(score, key) for score, _ in scores])) for key in ("agreement", "kl")}
    return [
        {"name": f"{name}, mean of {len(scores)}", "skipped": count, "tokens": best.tokens, **mean},
        row(f"{name}, best", mask, best),
    ]


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| mask | skipped | agreement | KL | search loss | evaluations | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        loss = f"{one['loss']:.4f}" if "loss" in one else ""
        lines.append(
            f"| {one['name']} | {one['skipped']} | {one['agreement']:.4f} | {one['kl']:.4f} | {loss} | "
            f"{one.get('evaluations', '')} | {one.get('seconds', '')} |"
        )
    masks = [f"{one['name']}: {one['mask']}" for one in rows if "mask" in one]
    return "\n".join([*lines, "", f"{rows[0]['tokens']} held-out tokens", *masks])


if __name__ == "__main__":
    sys.exit(main())
