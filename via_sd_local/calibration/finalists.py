"""The comparison of the best masks of a search: the engine is replayed with each, on the text of the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..engine.costs import Costs
from ..engine.policy import Mode, Policy
from ..mask import LayerMask
from .dimr.answers import RecordedAnswer
from .dimr.evaluation import Evaluator
from .dimr.space import FrontPoint
from .dimr.speed import Shares
from .recording import Recorded, Recording
from .replay import replay
from .top_logits import TopLogits

_BUDGETS = (0.02, 0.05)  # of deviation, at which masks are compared
_DIGITS = 3  # of tokens per second; masks that are equal to this precision are ranked by agreement


def fastest_finalist(
    finalists: Sequence[FrontPoint],
    answers: Sequence[RecordedAnswer],
    evaluator: Evaluator,
    draft: TopLogits,
    costs: Costs,
    shares: Shares,
    tick: Callable[[], None],
) -> LayerMask:
    """Return the mask whose replay is fastest, in tokens per second; among equal ones the one that agrees most.

    `draft` holds the draft model's distributions over the answers, `[n]`; `costs` those of full passes and of drafting.
    `tick` is called after each finalist.
    """
    speeds: dict[LayerMask, tuple[float, float]] = {}
    for point in finalists:
        recording = _recording(answers, evaluator, point.mask, draft)
        speed = _predicted_speed(recording, _masked_costs(costs, shares, point.mask))
        speeds[point.mask] = (round(speed, _DIGITS), point.score.agreement)
        tick()
    return max(speeds, key=lambda mask: speeds[mask])


def _recording(answers: Sequence[RecordedAnswer], evaluator: Evaluator, mask: LayerMask, draft: TopLogits) -> Recording:
    """Return a recording of the answers in which the slim tier skips the sublayers of `mask`."""
    slim = evaluator.slim(mask)
    ends = [*evaluator.starts[1:], len(evaluator)]
    rows = [slice(start, end) for start, end in zip(evaluator.starts, ends, strict=True)]
    return Recording(
        [
            Recorded(list(answer.prompt_tokens), list(answer.tokens), evaluator.full[part], slim[part], draft[part])
            for answer, part in zip(answers, rows, strict=True)
        ]
    )


def _masked_costs(costs: Costs, shares: Shares, mask: LayerMask) -> Costs:
    """Add the costs of slim and resumed passes, which are taken to be proportional to the weights that they read."""
    table = costs.to_json()
    first = mask.first or 0
    for kind, share in (("slim", 1 - shares.skipped(mask)), ("resume", 1 - shares.below(first))):
        table[kind] = {size: share * seconds for size, seconds in table["full"].items()}
    if first == 0:
        del table["resume"]
    return Costs.from_json(table)


def _predicted_speed(recording: Recording, costs: Costs) -> float:
    """Return the tokens per second of the faster of the modes that use the slim tier."""
    policies = [Policy(Mode.EXACT)] + [Policy(Mode.TIERED, max_deviation=level) for level in _BUDGETS]
    return max(replay(recording, costs, policy).tokens_per_second for policy in policies)
