"""The second stage: search for the mask of the slim tier."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate

from ...engine.costs import Costs
from ...mask import LayerMask
from ...profiles.profile import Point, SearchSummary
from ...progress import StageBars
from ..dimr.answers import RecordedAnswer
from ..dimr.evaluation import Evaluator, teacher_forced
from ..dimr.objective import Objective, agreement
from ..dimr.search import SearchBudget, SearchProgress, SearchResult, search
from ..dimr.speed import Shares, speed_worth
from ..dimr.strategies import Worth
from ..finalists import fastest_finalist
from ..plan import DEFAULT_PAPER, Plan
from ..top_logits import TopLogits
from ..workbench import Workbench
from .costs import measure_costs

_TOKENS = 32  # of each answer that masks are tried on: many masks teach more than many tokens
_FINALISTS = 8
_OBJECTIVES: dict[str, Objective] = {"guided": "kl", "paper": "relu", "random": "kl"}


@dataclass(frozen=True, slots=True)
class MaskResult:
    """A mask, how it was found, and the (skip ratio, loss) of every mask scored on the whole text, in order."""

    mask: LayerMask
    summary: SearchSummary
    tried: tuple[tuple[float, float], ...]


def find_mask(bench: Workbench, answers: list[RecordedAnswer]) -> MaskResult:
    """Find the mask that promises the most tokens per second within the search budget of the plan.

    Masks are scored on the beginning of each answer, by a formula for the speed; the replay of the engine then compares
    the best few. Ctrl-C ends the search with the best mask so far. Raises ValueError if no mask is possible.
    """
    costs = _full_costs(bench)
    beginnings = [replace(answer, tokens=answer.tokens[:_TOKENS]) for answer in answers]
    draft = _draft_rows(bench, answers)
    shares = Shares.of(bench.model.path)
    paper = bench.plan.paper
    with closing(
        Evaluator(bench.model, beginnings, n_threads=bench.threads, alpha=paper.alpha, beta=paper.beta)
    ) as evaluator:
        agreements = {} if draft is None else {"draft_agreement": agreement(draft, evaluator.full)}
        worth = speed_worth(shares, costs, **agreements)
        result = _search(bench, evaluator, worth)
        mask = result.mask
        if draft is not None and bench.plan.skip_ratio is None and not paper.by_cost:
            front = sorted(result.front, key=lambda point: -worth(point.mask, point.score))[:_FINALISTS]
            bench.bars.stage("finalists", len(front))
            mask = fastest_finalist(front, beginnings, evaluator, draft, costs, shares, bench.bars.step)
            bench.bars.end()
    scored = [(trial.mask, trial.score) for trial in result.trials if trial.score is not None and not trial.quick]
    tried = tuple((each.skip_ratio, score.loss(result.objective)) for each, score in scored)
    return MaskResult(mask, _summary(result), tried)


def _full_costs(bench: Workbench) -> Costs:
    """Return the costs of full passes and of the draft model; saved, because a resumed search must use the same."""
    name = f"costs-{bench.threads}-{bench.draft_hash[:12] if bench.draft_hash else 'alone'}.json"
    costs = bench.work.load(name, lambda path: Costs.from_json(json.loads(path.read_text(encoding="utf-8"))))
    if costs is None or not costs.knows("full"):
        costs, _ = measure_costs(bench, LayerMask.of(bench.model.n_layer))
        bench.work.save_json(name, costs.to_json())
    return costs


def _draft_rows(bench: Workbench, answers: list[RecordedAnswer]) -> TopLogits | None:
    """Return the draft model's distributions over the beginnings of the answers; None without a draft model."""
    if bench.draft is None:
        return None
    rows = teacher_forced(bench.draft, answers, n_threads=bench.threads)
    ends = list(accumulate(len(answer.tokens) for answer in answers))
    starts = [0, *ends[:-1]]
    return TopLogits.join(
        [rows[start : start + min(_TOKENS, end - start)] for start, end in zip(starts, ends, strict=True)]
    )


def _search(bench: Workbench, evaluator: Evaluator, worth: Worth) -> SearchResult:
    plan, bars = bench.plan, bench.bars
    objective = _OBJECTIVES[plan.strategy]
    budget = _budget(plan)
    facts: list[object] = [
        plan.strategy,
        objective,
        plan.seed,
        plan.skip_ratio,
        plan.evaluations,
        plan.minutes_of_search,
    ]
    facts += [repr(plan.paper)] if plan.paper != DEFAULT_PAPER else []
    name = f"search-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}.jsonl"
    bars.stage("search", budget.evaluations or 60 * plan.minutes_of_search, "Ctrl-C ends it early")
    result = search(
        evaluator.score,
        bench.model.n_layer,
        budget,
        worth=worth,
        quick_score=evaluator.quick_score,
        quick_cost=evaluator.quick_cost,
        strategy=plan.strategy,
        skip_ratio=plan.skip_ratio,
        objective=objective,
        paper=plan.paper,
        seed=plan.seed,
        log=bench.work.log(name),
        progress=lambda progress: _show(progress, bars),
    )
    bars.end()
    return result


def _budget(plan: Plan) -> SearchBudget:
    if plan.evaluations is not None:
        return SearchBudget(plan.evaluations)
    return SearchBudget(minutes=plan.minutes_of_search)


def _show(progress: SearchProgress, bars: StageBars) -> None:
    """Move the bar, in the unit of the budget, and name the best mask so far."""
    note, best = f"{progress.evaluations} masks", progress.best
    if best is not None:
        ratio, share = 100 * best.mask.skip_ratio, 100 * best.score.agreement
        note += f"; best skips {ratio:.0f} %, agrees {share:.1f} %"
    bars.set(progress.evaluations if progress.budget.evaluations is not None else progress.seconds, note)


def _summary(result: SearchResult) -> SearchSummary:
    front = tuple(
        Point(
            str(point.mask),
            round(point.mask.skip_ratio, 4),
            round(point.score.loss(result.objective), 6),
            round(point.score.agreement, 6),
        )
        for point in result.front
    )
    return SearchSummary(
        strategy=result.strategy,
        objective=result.objective,
        evaluations=result.evaluations,
        seconds=round(result.seconds, 1),
        seed=result.seed,
        complete=not result.interrupted,
        front=front,
    )
