"""The fourth stage: measure what passes of every kind and size cost on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

from ...engine.costs import Costs
from ...engine.measure import measure
from ...mask import LayerMask
from ...tiers.drafter import Drafter
from ...tiers.model_drafter import ModelDrafter
from ...tiers.verifier import Verifier
from ..workbench import Workbench

ROUNDS = 5  # measurements of every pass
ROUND_SECONDS = 20.0  # time limit of each
_N_CTX = 64  # tokens


def measure_costs(bench: Workbench, mask: LayerMask) -> tuple[Costs, str | None]:
    """Return the costs of passes under a mask, and why the full tier cannot resume slim passes (None if it can)."""
    bench.bars.stage("costs", ROUNDS)
    with ExitStack() as stack:
        verifier = stack.enter_context(bench.verifier(mask, _N_CTX))
        drafters: list[Drafter] = []
        if bench.draft is not None:
            drafter = ModelDrafter(bench.draft, bench.model, n_ctx=_N_CTX, n_threads=bench.threads)
            drafters = [stack.enter_context(closing(drafter))]
        costs = time_passes(verifier, drafters, ROUNDS, bench.bars.step)
        no_resume = verifier.why_no_resume if mask else None
    bench.bars.end()
    return costs, no_resume


def time_passes(verifier: Verifier, drafters: Sequence[Drafter], rounds: int, tick: Callable[[], None]) -> Costs:
    """Return the median costs of passes over `rounds` measurements of every kind and size; call `tick` after each."""
    costs = Costs()
    for _ in range(rounds):
        for kind, row in measure(verifier, drafters, ROUND_SECONDS, samples=1).to_json().items():
            if kind == "prefill":  # of the drafter; no decision depends on it
                continue
            for size, seconds in row.items():
                costs.observe(kind, int(size), seconds)
        tick()
    return Costs.from_json(costs.to_json())
