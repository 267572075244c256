#!/usr/bin/env python3
"""Compare policies in seconds: the real engine runs on recorded logits and a table of costs, without the models.

    python bench/simulate.py record --verifier V --draft D --mask M -o text.npz [--tokens 64] [--threads 2]
    python bench/simulate.py run text.npz [--costs FILE | flat | staircase] [--configs sd tiered:joint:0.5,0.5 …]
    python bench/simulate.py frontier text.npz [--costs …]

`record` has the verifier answer bench/tasks.json and stores the logits of all three tiers for the answers. `frontier`
compares `tiered`, by rule and budget, with `sd`. Costs come from a file of `record --costs`, or from one of two tables
in units of a full pass over one token: `flat`, where 32 tokens cost 1.3 of these, as on GPUs (`flat:0.4` sets the slim
tier's cost to 0.4 of the full tier's instead of 0.56), and `staircase`, measured on a CPU. Configurations are those of
bench/modes.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from modes import policy_of
from prompts import tasks

from via_sd_local.calibration.recording import Recording, record
from via_sd_local.calibration.replay import Replayed, replay
from via_sd_local.catalog.lookup import resolve
from via_sd_local.engine.costs import Costs
from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import ConfidenceRule, JointRule
from via_sd_local.engine.measure import measure
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.chat_format import ChatFormat
from via_sd_local.runtime.model import Model
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.verifier import Verifier

SIZES = (1, 2, 3, 4, 5, 8, 16, 32)
LEVELS = (0.0, 0.01, 0.02, 0.05, 0.10, 0.12)


@dataclass(frozen=True)
class Answer:
    """A prompt and the verifier's answer, in token ids."""

    prompt_tokens: list[int]
    tokens: list[int]


def flat(slim: float = 0.56, resume: float = 0.65, draft: float = 0.12) -> Costs:
    """Return costs of a machine on which batches are almost free: 32 tokens take 1.3 times as long as one."""
    full = {size: 1 + 0.3 * (size - 1) / 31 for size in SIZES}
    return Costs(
        {
            "full": full,
            "slim": {size: slim * cost for size, cost in full.items()},
            "resume": {size: resume * cost for size, cost in full.items()},
            "draft": {1: draft, 2: draft},
        }
    )


def staircase() -> Costs:
    """Return the costs of the default testbed on 2 threads of a Xeon (Sapphire Rapids), measured by bench/modes.py."""
    sizes = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)
    milliseconds = {
        "full": (71, 102, 129, 92, 124, 151, 180, 168, 235, 255, 410, 512),
        "slim": (43, 59, 76, 56, 73, 89, 107, 103, 140, 150, 234, 291),
        "resume": (56, 80, 102, 74, 98, 118, 140, 133, 186, 204, 320, 395),
    }
    table = {kind: dict(zip(sizes, row, strict=True)) for kind, row in milliseconds.items()}
    table["draft"] = {1: 7.5, 2: 10.1}
    return Costs({kind: {size: cost / 71 for size, cost in row.items()} for kind, row in table.items()})


def costs_from(name: str) -> Costs:
    """Return a table by name, or from a file."""
    kind, _, slim = name.partition(":")
    if kind == "flat":
        return flat(float(slim)) if slim else flat()
    if name == "staircase":
        return staircase()
    return Costs.from_json(json.loads(Path(name).read_text(encoding="utf-8")))


RULES = (
    JointRule(0.3, 0.5),
    JointRule(0.5, 0.5),
    JointRule(0.7, 0.7),
    ConfidenceRule(0.3, 0.3),
    ConfidenceRule(0.7, 0.5),
)


def make_recording(args: argparse.Namespace) -> int:
    """Record the tiers' logits on the verifier's answers, and the costs if asked for."""
    chosen = tasks(args.prompts)
    with closing(Model(resolve(args.verifier))) as model, closing(Model(resolve(args.draft))) as draft:
        form, mask = ChatFormat(model), LayerMask.parse(args.mask, model.n_layer)
        with closing(Verifier(model, n_ctx=args.n_ctx, mask=mask, n_threads=args.threads)) as verifier:
            if args.costs:
                with closing(ModelDrafter(draft, model, n_ctx=args.n_ctx, n_threads=args.threads)) as drafter:
                    args.costs.write_text(json.dumps(measure(verifier, [drafter], 20.0).to_json()), encoding="utf-8")
            engine = Engine(verifier, None, Policy(Mode.PLAIN))
            answers = []
            for task in chosen:
                prompt = form.tokens([{"role": "user", "content": task["prompt"]}])
                engine.reset()
                steps = engine.generate(prompt, max_tokens=args.tokens)
                answers.append(Answer(prompt, [token for step in steps for token in step.tokens]))
                print(f"\r{len(answers)} of {len(chosen)} answers", end="", file=sys.stderr)
            recording = record(verifier, draft, [answer for answer in answers if len(answer.tokens) > 1])
    recording.save(args.output)
    print(f"\n{args.output}: {len(recording)} positions of {len(recording.answers)} answers", file=sys.stderr)
    return 0


def show(name: str, result: Replayed, base: float) -> str:
    """Format one configuration's row; `base` is the speed of plain, in tokens per unit of cost."""
    stats = result.stats
    slim = sum(s.passes["slim"].calls for s in stats)
    full = sum(s.passes["full"].calls + s.passes["resume"].calls for s in stats)
    return (
        f"{name:34} {result.tokens_per_second / base:7.3f} {result.deviation:9.4f} "
        f"{slim / result.tokens:9.3f} {full / result.tokens:9.3f} {sum(s.drafted for s in stats) / result.tokens:9.2f}"
    )


HEAD = f"{'configuration':34} {'x plain':>7} {'deviation':>9} {'slim/tok':>9} {'full/tok':>9} {'draft/tok':>9}"


def run(args: argparse.Namespace) -> int:
    """Print one row per configuration."""
    recording, costs = Recording.load(args.recording), costs_from(args.costs)
    plain = replay(recording, costs, Policy()).tokens_per_second
    print(HEAD)
    for config in args.configs:
        print(show(config, replay(recording, costs, policy_of(config)), plain), flush=True)
    return 0


def frontier(args: argparse.Namespace) -> int:
    """Print speed and deviation of `tiered` by rule and budget."""
    recording, costs = Recording.load(args.recording), costs_from(args.costs)
    plain = replay(recording, costs, Policy()).tokens_per_second
    sd = replay(recording, costs, Policy(Mode.SD)).tokens_per_second
    fixed = max((replay(recording, costs, Policy(Mode.SD, n)).tokens_per_second, n) for n in range(1, 17))
    print(f"sd {sd / plain:.2f} x plain; the best fixed length ({fixed[1]}) {fixed[0] / plain:.2f} x plain")
    print(f"{'tiered':18}" + "".join(f"{level:>14.2f}" for level in LEVELS) + "   (x sd / deviation)")
    for rule in RULES:
        row = [replay(recording, costs, Policy(Mode.TIERED, rule=rule, max_deviation=level)) for level in LEVELS]
        cells = "".join(f"{result.tokens_per_second / sd:8.2f}/{result.deviation:.3f}" for result in row)
        print(f"{rule.name} {rule.accept:g},{rule.rewrite:g}".ljust(18) + cells, flush=True)
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    recorder = commands.add_parser("record")
    recorder.add_argument("--verifier", required=True)
    recorder.add_argument("--draft", required=True)
    recorder.add_argument("--mask", required=True)
    recorder.add_argument("-o", "--output", type=Path, required=True)
    recorder.add_argument("--costs", type=Path, help="also measure costs, and write them to this file")
    recorder.add_argument("--prompts", type=int, default=20)
    recorder.add_argument("--tokens", type=int, default=64)
    recorder.add_argument("--n-ctx", type=int, default=1024)
    recorder.add_argument("--threads", type=int, default=2)
    recorder.set_defaults(command=make_recording)
    for name, command in (("run", run), ("frontier", frontier)):
        user = commands.add_parser(name)
        user.add_argument("recording", type=Path)
        user.add_argument("--costs", default="staircase")
        user.set_defaults(command=command)
        if name == "run":
            user.add_argument("--configs", nargs="+", default=["sd", "sd:3", "exact", "tiered:joint:0.5,0.5"])
    args = parser.parse_args(argv)
    return int(args.command(args))


if __name__ == "__main__":
    sys.exit(main())
