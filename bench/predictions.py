#!/usr/bin/env python3
"""Compare what a routing profile predicts with what happens on prompts that calibration has not seen.

    python bench/predictions.py --verifier V --draft D [--profile FILE] [--prompts 20] [--tokens 40] [--rounds 1]

The modes alternate in one process, caches are emptied before every run, and prefill is excluded. Speeds are all tokens
over all seconds, as in the profile; of several rounds, the fastest counts per prompt. The deviation is the share of
emitted tokens that are not the full model's own choice by teacher forcing, minus the same share for `plain` (batches of
other shapes round differently).
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

from via_sd_local.catalog.lookup import resolve
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.kept_costs import costs_of
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.errors import ViaSdError
from via_sd_local.mask import LayerMask
from via_sd_local.profiles.profile import Profile
from via_sd_local.runtime.chat_format import ChatFormat
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.session.request import Route
from via_sd_local.session.settings import Settings
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.verifier import Verifier


@dataclass(slots=True)
class Row:
    """One mode: the prediction, and (tokens, seconds, agreement) for each prompt."""

    predicted: float
    level: float | None = None
    bound: float | None = None
    runs: list[tuple[int, float, float]] = field(default_factory=list)

    def report(self, plain: Row) -> dict[str, Any]:
        """Return the prediction and the measurements, with ratios to `plain` per prompt."""
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
            "worst_ratio": min(speed / other for speed, other in zip(speeds, base, strict=True)),
        }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verifier", required=True, metavar="MODEL")
    parser.add_argument("--draft", required=True, metavar="MODEL")
    parser.add_argument("--profile", default="auto", metavar="FILE", help="default: the profile that fits the models")
    parser.add_argument("--prompts", type=int, default=20, help="number of tasks out of 20, evenly chosen")
    parser.add_argument("--tokens", type=int, default=40, help="tokens per answer (default: %(default)s)")
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
    """Return the settings that a user would give, for each mode that the profile predicts."""
    common = {"verifier": args.verifier, "profile": args.profile, "threads": args.threads}
    drafting = {"sd": Settings(mode="sd", draft=args.draft, **common)}
    if profile.speeds.exact is not None:
        drafting["exact"] = Settings(mode="exact", draft=args.draft, **common)
    for level in profile.levels:
        if level.best is not None:
            budget = level.max_deviation
            drafting[f"tiered@{budget:g}"] = Settings(mode="tiered", draft=args.draft, max_deviation=budget, **common)
    return {"plain": Settings(mode="plain", verifier=args.verifier, threads=args.threads), **drafting}


def run(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Measure every mode that the profile predicts; ValueError if there is no profile of the pair."""
    path = resolve(args.verifier)
    asked = Settings(verifier=args.verifier, draft=args.draft, mode="auto", profile=args.profile, threads=args.threads)
    match = asked.resolve().route.match
    if match is None or not match.pair:
        raise ValueError("there is no profile of this pair: run via-sd-local calibrate, or give one with --profile")
    profile = match.profile
    settings = settings_of(args, profile)
    routes = {name: choice.resolve().route for name, choice in settings.items()}
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
                tokens = len(emitted) - 1  # the prefill yields the first one
                rows[name].runs.append((tokens, tokens / speed, agreement(reference, prompt, emitted)))
    return {name: row.report(rows["plain"]) for name, row in rows.items()}


def generate(engine: Engine, prompt: list[int], n: int) -> tuple[float | None, list[int]]:
    """Generate from empty caches; return tokens per second and the tokens."""
    engine.reset()
    emitted = [token for step in engine.generate(prompt, max_tokens=n) for token in step.tokens]
    return engine.stats.tokens_per_second, emitted


def engine_of(route: Route, verifier: Verifier, drafter: ModelDrafter) -> Engine:
    """Build the engine as a session does, but with the verifier and the drafter that all modes share."""
    policy = Policy(route.mode, None, route.rule, max_deviation=route.max_deviation)
    if route.mode is Mode.PLAIN:
        return Engine(verifier, None, policy)
    return Engine(verifier, drafter, policy, route.costs or costs_of(verifier, [drafter]))


def row_of(name: str, profile: Profile) -> Row:
    """Return the row of a mode, with the profile's prediction."""
    if not name.startswith("tiered@"):
        return Row(getattr(profile.speeds, name))
    level = next(level for level in profile.levels if name == f"tiered@{level.max_deviation:g}")
    assert level.best is not None
    assert level.best.tokens_per_second is not None
    return Row(level.best.tokens_per_second, level.max_deviation, level.best.bound)


def table(report: dict[str, dict[str, Any]]) -> str:
    """Format the report as a Markdown table."""
    lines = [
        "| mode | predicted tokens/s | measured | measured / predicted | worst, x plain | deviation minus plain's "
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
