"""The search for a mask as a stage of calibration."""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate

from ..engine.costs import Costs
from ..engine.policy import Mode, Policy
from ..mask import LayerMask
from ..profiles.profile import Point, SearchSummary
from ..progress import StageBars
from ..runtime.model import Model
from .dimr.answers import RecordedAnswer
from .dimr.evaluation import Evaluator
from .dimr.objective import Objective, agreement
from .dimr.search import SearchBudget, SearchProgress, search
from .dimr.speed import Shares, speed_worth
from .plan import Plan
from .recording import Recorded, Recording
from .replay import replay
from .top_logits import TopLogits
from .work import Work

_TOKENS = 32  # of each answer that masks are tried on: many masks teach more than many tokens
_FINALISTS = 8
_BUDGETS = (0.02, 0.05)  # of deviation, by which finalists are compared
_OBJECTIVES: dict[str, Objective] = {"guided": "kl", "paper": "relu", "random": "kl"}


@dataclass(frozen=True, slots=True)
class MaskResult:
    """The mask, how it was found, and (skip ratio, cost) of every mask that was tried on the whole text, in order."""

    mask: LayerMask
    summary: SearchSummary
    tried: tuple[tuple[float, float], ...]


def find_mask(
    model: Model,
    answers: list[RecordedAnswer],
    plan: Plan,
    *,
    costs: Costs,
    draft: TopLogits | None,
    threads: int,
    work: Work,
    bars: StageBars,
) -> MaskResult:
    """The mask that promises most tokens a second, of those that the plan's budget allows to try.

    `costs` are those of full passes and of the draft model, `draft` what that one says of the answers' tokens, `[n]`;
    None without one. Ctrl-C ends the search with the best so far. ValueError where no mask is possible.

    Masks are tried on the beginnings of the answers. The search itself goes by a formula; the best few masks by it are
    then compared in replays of the engine.
    """
    if draft is not None:
        ends = list(accumulate(len(answer.tokens) for answer in answers))
        starts = [0, *ends[:-1]]
        draft = TopLogits.join(
            [draft[start : start + min(_TOKENS, end - start)] for start, end in zip(starts, ends, strict=True)]
        )
    answers = [replace(answer, tokens=answer.tokens[:_TOKENS]) for answer in answers]
    objective = _OBJECTIVES[plan.strategy]
    budget = (
        SearchBudget(plan.evaluations) if plan.evaluations is not None else SearchBudget(minutes=plan.minutes_of_search)
    )
    facts = [plan.strategy, objective, plan.seed, plan.skip_ratio, plan.evaluations, plan.minutes_of_search]
    name = f"search-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}.jsonl"
    bars.stage("search", budget.evaluations or 60 * plan.minutes_of_search, "Ctrl-C ends it early")

    def heard(progress: SearchProgress) -> None:
        best = progress.best
        note = f"{progress.evaluations} masks" + (
            f"; best skips {100 * best.mask.skip_ratio:.0f} % and agrees on {100 * best.score.agreement:.1f} %"
            if best is not None
            else ""
        )
        bars.set(progress.evaluations if budget.evaluations is not None else progress.seconds, note)

    shares = Shares.of(model.path)
    with closing(Evaluator(model, answers, n_threads=threads)) as evaluator:
        known = {} if draft is None else {"draft_agreement": agreement(draft, evaluator.full)}
        worth = speed_worth(shares, costs, **known)
        result = search(
            evaluator.score,
            model.n_layer,
            budget,
            worth=worth,
            quick_score=evaluator.quick_score,
            quick_cost=evaluator.quick_cost,
            strategy=plan.strategy,
            skip_ratio=plan.skip_ratio,
            objective=objective,
            seed=plan.seed,
            log=work.log(name),
            progress=heard,
        )
        bars.end()
        mask = result.mask
        if draft is not None and plan.skip_ratio is None:
            best = sorted(result.front, key=lambda point: -worth(point.mask, point.score))[:_FINALISTS]
            bars.stage("finalists", len(best))
            speeds: dict[LayerMask, tuple[float, float]] = {}
            for point in best:
                recording = _recording(answers, evaluator, point.mask, draft)
                speed = _promise(recording, _with_mask(costs, shares, point.mask))
                speeds[point.mask] = (
                    round(speed, 3),
                    point.score.agreement,
                )  # equal where the slim tier is never asked
                bars.step()
            mask = max(speeds, key=lambda mask: speeds[mask])
            bars.end()
    summary = SearchSummary(
        strategy=result.strategy,
        objective=result.objective,
        evaluations=result.evaluations,
        seconds=round(result.seconds, 1),
        seed=result.seed,
        complete=not result.interrupted,
        front=tuple(
            Point(
                str(point.mask),
                round(point.mask.skip_ratio, 4),
                round(point.score.loss(objective), 6),
                round(point.score.agreement, 6),
            )
            for point in result.front
        ),
    )
    whole = [(t.mask, t.score) for t in result.trials if t.score is not None and not t.quick]
    return MaskResult(mask, summary, tuple((each.skip_ratio, score.loss(objective)) for each, score in whole))


def _recording(answers: list[RecordedAnswer], evaluator: Evaluator, mask: LayerMask, draft: TopLogits) -> Recording:
    """Return a recording of the answers in which the slim tier skips this mask."""
    slim = evaluator.slim(mask)
    ends = [*evaluator.starts[1:], len(evaluator)]
    rows = [slice(start, end) for start, end in zip(evaluator.starts, ends, strict=True)]
    return Recording(
        [
            Recorded(list(answer.prompt_tokens), list(answer.tokens), evaluator.full[part], slim[part], draft[part])
            for answer, part in zip(answers, rows, strict=True)
        ]
    )


def _with_mask(costs: Costs, shares: Shares, mask: LayerMask) -> Costs:
    """The costs with slim and resumed passes, taken to be as much cheaper as they read fewer weights."""
    table = costs.to_json()
    first = mask.first or 0
    for kind, share in (("slim", 1 - shares.skipped(mask)), ("resume", 1 - shares.below(first))):
        table[kind] = {size: share * seconds for size, seconds in table["full"].items()}
    if first == 0:
        del table["resume"]
    return Costs.from_json(table)


def _promise(recording: Recording, costs: Costs) -> float:
    """Tokens a second of the faster one of the modes that use the slim tier."""
    policies = [Policy(Mode.EXACT)] + [Policy(Mode.TIERED, max_deviation=level) for level in _BUDGETS]
    return max(replay(recording, costs, policy).tokens_per_second for policy in policies)
