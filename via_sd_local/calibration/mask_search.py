"""The search for a mask as a stage of calibration."""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass

from ..costs import Costs
from ..dimr.answers import Answer
from ..dimr.evaluation import Evaluator
from ..dimr.objective import Objective
from ..dimr.search import Budget, Progress, search
from ..dimr.speed import Shares, speed_worth
from ..mask import LayerMask
from ..model import Model
from ..profile import Point, SearchSummary
from .bars import Bars
from .plan import Plan
from .work import Work

_OBJECTIVES: dict[str, Objective] = {"guided": "kl", "paper": "relu", "random": "kl"}


@dataclass(frozen=True, slots=True)
class Found:
    """The mask, how it was found, and (skip ratio, cost) of every mask that was tried, in order."""

    mask: LayerMask
    summary: SearchSummary
    tried: tuple[tuple[float, float], ...]


def find_mask(
    model: Model,
    answers: list[Answer],
    plan: Plan,
    *,
    costs: Costs,
    draft_agreement: float | None,
    threads: int,
    work: Work,
    bars: Bars,
) -> Found:
    """The mask that promises most tokens a second, of those that the plan's budget allows to try.

    `costs` are those of full passes and of the draft model; `draft_agreement` is None without one. Ctrl-C ends the
    search with the best so far. ValueError where no mask is possible.
    """
    objective = _OBJECTIVES[plan.strategy]
    budget = Budget(plan.evaluations) if plan.evaluations is not None else Budget(minutes=plan.minutes_of_search)
    facts = [plan.strategy, objective, plan.seed, plan.skip_ratio, plan.evaluations, plan.minutes_of_search]
    name = f"search-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}.jsonl"
    bars.stage("search", budget.evaluations or 60 * plan.minutes_of_search, "Ctrl-C ends it early")

    def heard(progress: Progress) -> None:
        best = progress.best
        note = f"{progress.evaluations} masks" + (
            f"; best skips {100 * best.mask.skip_ratio:.0f} % and agrees on {100 * best.score.agreement:.1f} %"
            if best is not None
            else ""
        )
        bars.to(progress.evaluations if budget.evaluations is not None else progress.seconds, note)

    shares = Shares.of(model.path)
    known = {} if draft_agreement is None else {"draft_agreement": draft_agreement}
    with closing(Evaluator(model, answers, n_threads=threads)) as evaluator:
        result = search(
            evaluator.score,
            model.n_layer,
            budget,
            worth=speed_worth(shares, costs, **known),
            strategy=plan.strategy,
            skip_ratio=plan.skip_ratio,
            objective=objective,
            seed=plan.seed,
            log=work.log(name),
            progress=heard,
        )
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
    tried = [(t.mask.skip_ratio, t.score.loss(objective)) for t in result.trials if t.score is not None]
    return Found(result.mask, summary, tuple(tried))
