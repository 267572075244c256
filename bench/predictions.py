#!/usr/bin/env python3
"""What a routing profile predicts, and what then happens on prompts that calibration has not seen.

    python bench/predictions.py --verifier V --draft D [--profile FILE] [--prompts 20] [--tokens 40] [--rounds 1]

The modes alternate in one process, caches are emptied before every run, and prefill does not count. Speeds are tokens
by seconds over all prompts, as in the profile; of several rounds each prompt's fastest counts. The deviation is the
share of emitted tokens that are not the full model's own choice by teacher forcing, less what `plain` itself scores
(batches of other shapes round differently).
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

from modes import agreement
from prompts import tasks

from via_sd_local.catalog.catalog import resolve
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.measure import costs_of
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.errors import ViaSdError
from via_sd_local.mask import LayerMask
from via_sd_local.profiles.profile import Profile
from via_sd_local.runtime.chat_format import ChatFormat
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.session.routing import Route, find_route
from via_sd_local.session.settings import Settings
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.verifier import Verifier


@dataclass(slots=True)
class Row:
    """A mode: what was predicted, and (tokens, seconds, agreement) of every prompt."""

    predicted: float
    level: float | None = None
    bound: float | None = None
    runs: list[tuple[int, float, float]] = field(default_factory=list)

    def report(self, plain: Row) -> dict[str, Any]:
        tokens, seconds, agreed = (sum(column) for column in zip(*self.runs, strict=True))
        speeds, base = ([n / took for n, took, _ in row.runs] for row in (self, plain))
        reference = sum(run[2] for run in plain.runs) / len(plain.runs)
        return {
            "predicted": self.predicted,
            "measured": tokens / seconds,
            "measured_by_predicted": tokens / seconds / self.predicted,
            "deviation": reference - agreed / len(self.runs),
            "max_deviation": self.level,
            "bound": self.bound,
            "speeds": [round(speed, 2) for speed in speeds],
            "worst_ratio": min(mine / other for mine, other in zip(speeds, base, strict=True)),
        }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verifier", required=True, metavar="MODEL")
    parser.add_argument("--draft", required=True, metavar="MODEL")
    parser.add_argument("--profile", default="auto", metavar="FILE", help="default: the one that fits")
    parser.add_argument("--prompts", type=int, default=20, help="how many of the 20 tasks, evenly chosen")
    parser.add_argument("--tokens", type=int, default=40, help="of each answer (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--n-ctx", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    try:
        report = run(args)
    except (ViaSdError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(report, indent=2) if args.json else table(report))
    return 0


def settings_of(args: argparse.Namespace, profile: Profile) -> dict[str, Settings]:
    """What a user would ask for, for every mode that the profile has a prediction for."""
    common = {"verifier": args.verifier, "profile": args.profile, "threads": args.threads}
    made = {"sd": Settings(mode="sd", draft=args.draft, **common)}
    if profile.speeds.exact is not None:
        made["exact"] = Settings(mode="exact", draft=args.draft, **common)
    for level in profile.levels:
        if level.best is not None:
            budget = level.max_deviation
            made[f"tiered@{budget:g}"] = Settings(mode="tiered", draft=args.draft, max_deviation=budget, **common)
    return {"plain": Settings(mode="plain", verifier=args.verifier, threads=args.threads), **made}


def run(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    path = resolve(args.verifier)
    asked = Settings(verifier=args.verifier, draft=args.draft, mode="auto", profile=args.profile, threads=args.threads)
    match = find_route(asked.resolve(), args.threads).match
    if match is None or not match.pair:
        raise ValueError("there is no profile of this pair: run via-sd-local calibrate, or give one with --profile")
    profile = match.profile
    settings = settings_of(args, profile)
    routes = {name: find_route(choice.resolve(), args.threads) for name, choice in settings.items()}
    with ExitStack() as stack:
        model = stack.enter_context(closing(Model(path)))
        draft = stack.enter_context(closing(Model(resolve(args.draft))))
        mask = LayerMask.parse(profile.mask, model.n_layer) if profile.has_mask else None
        sizes = {"n_ctx": args.n_ctx, "n_threads": args.threads}
        reference = stack.enter_context(closing(Context(model, **sizes)))
        verifier = stack.enter_context(closing(Verifier(model, mask=mask, **sizes)))
        drafter = stack.enter_context(closing(ModelDrafter(draft, model, **sizes)))
        engines = {name: engine_of(routes[name], verifier, drafter) for name in settings}
        rows = {name: row_of(name, profile) for name in settings}
        form = ChatFormat(model)
        for number, task in enumerate(tasks(args.prompts)):
            prompt = form.tokens([{"role": "user", "content": task["prompt"]}])
            shift = number % len(engines)
            names = [*engines][shift:] + [*engines][:shift]
            fastest: dict[str, tuple[float, list[int]]] = {}
            for name in names * args.rounds:
                speed, emitted = generate(engines[name], prompt, args.tokens)
                if speed is not None and (name not in fastest or speed > fastest[name][0]):
                    fastest[name] = (speed, emitted)
            for name, (speed, emitted) in fastest.items():
                tokens = len(emitted) - 1  # the first one comes of the prefill
                rows[name].runs.append((tokens, tokens / speed, agreement(reference, prompt, emitted)))
    return {name: row.report(rows["plain"]) for name, row in rows.items()}


def generate(engine: Engine, prompt: list[int], n: int) -> tuple[float | None, list[int]]:
    """Tokens a second, and the tokens, from empty caches on."""
    engine.reset()
    emitted = [token for step in engine.generate(prompt, max_tokens=n) for token in step.tokens]
    return engine.stats.tokens_per_second, emitted


def engine_of(route: Route, verifier: Verifier, drafter: ModelDrafter) -> Engine:
    """The engine that a session would run, but with the verifier and the drafter that all modes share."""
    policy = Policy(route.mode, None, route.rule, max_deviation=route.max_deviation)
    if route.mode is Mode.PLAIN:
        return Engine(verifier, None, policy)
    return Engine(verifier, drafter, policy, route.costs or costs_of(verifier, [drafter]))


def row_of(name: str, profile: Profile) -> Row:
    if not name.startswith("tiered@"):
        return Row(getattr(profile.speeds, name))
    level = next(level for level in profile.levels if name == f"tiered@{level.max_deviation:g}")
    assert level.best is not None
    assert level.best.tokens_per_second is not None
    return Row(level.best.tokens_per_second, level.max_deviation, level.best.bound)


def table(report: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| mode | predicted tokens/s | measured | measured / predicted | worst, x plain | deviation less plain's "
        "| slim tier's bound |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in report.items():
        bound = "" if row["bound"] is None else f"{row['bound']:.3f}"
        lines.append(
            f"| {name} | {row['predicted']:.1f} | {row['measured']:.1f} | {row['measured_by_predicted']:.2f} "
            f"| {row['worst_ratio']:.2f} | {row['deviation']:.3f} | {bound} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
