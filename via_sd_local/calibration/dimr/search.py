"""The loop of DIMR: ask a strategy for a mask, score it, log it, tell the strategy, until the budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ...mask import LayerMask
from ..plan import DEFAULT_PAPER, STRATEGIES, PaperSearch, Strategy
from .guided import Guided
from .objective import OBJECTIVES, Objective, Score
from .space import FrontPoint, Space, Trial, front_of
from .strategies import MaskProposer, Paper, Random, Worth
from .trial_log import LoggedTrial, TrialLog

_PROBE = 40_961  # seed of the first trial of a budget in minutes
_PLANNED = 0.8  # of the evaluations that a budget in minutes is estimated to allow


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """The limit of a search: a number of evaluations, minutes, or both, whichever is reached first."""

    evaluations: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.evaluations is None and self.minutes is None:
            raise ValueError("a search needs a budget: evaluations, minutes, or both")
        if self.evaluations is not None and self.evaluations < 1:
            raise ValueError(f"evaluations is {self.evaluations}; a search needs at least one")
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(f"minutes is {self.minutes}; a search needs some time")

    def spent(self, evaluations: int, seconds: float) -> bool:
        over = self.minutes is not None and seconds >= 60 * self.minutes
        return over or (self.evaluations is not None and evaluations >= self.evaluations)


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The progress of a search; `best` is the point of the front with the highest worth so far."""

    evaluations: int
    seconds: float
    budget: SearchBudget
    best: FrontPoint | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The mask with the highest worth, the front that it was chosen from, and all trials in order.

    `evaluations` and `seconds` include those before a search was resumed.
    """

    mask: LayerMask
    front: tuple[FrontPoint, ...]
    evaluations: int
    strategy: str
    seed: int
    seconds: float
    objective: Objective
    trials: tuple[Trial, ...] = ()
    interrupted: bool = False

    @property
    def score(self) -> Score:
        """The chosen mask's score on the text of the search."""
        return next(point.score for point in self.front if point.mask == self.mask)


def search(
    score: Callable[[LayerMask], Score],
    n_layer: int,
    budget: SearchBudget,
    *,
    worth: Worth,
    quick_score: Callable[[LayerMask], Score] | None = None,
    quick_cost: float = 1.0,
    strategy: Strategy = "guided",
    skip_ratio: float | None = None,
    objective: Objective = "kl",
    paper: PaperSearch = DEFAULT_PAPER,
    seed: int = 0,
    log: Path | None = None,
    about: Mapping[str, Any] | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """Find the mask with the highest worth among those with the least loss for their number of skipped sublayers.

    `score` evaluates a mask and raises ValueError if it is rejected (`Evaluator.score`); `quick_score` does so on a
    part of the text, in a share `quick_cost` of the time, where a strategy needs no more. `objective` is the loss, and
    `paper` holds the options of strategy `paper`, whose margins are the evaluator's. The same seed, worths and
    budget in evaluations give the same mask. With `log`, a search that was killed continues where it stopped; `about`
    names what the scores depend on (model, text) and must not change. Ctrl-C ends the search with the best mask so far.
    Raises ValueError if the budget ends before a mask of the space was scored.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy is {strategy!r}; it is one of {', '.join(STRATEGIES)}")
    if objective not in OBJECTIVES:
        raise ValueError(f"objective is {objective!r}; it is one of {', '.join(OBJECTIVES)}")
    space = Space.of(n_layer, skip_ratio, keep_ends=paper.keep_ends)
    if paper.by_cost:

        def worth(_mask: LayerMask, score: Score) -> float:
            return -score.loss(objective)

    facts = {
        "strategy": strategy,
        "seed": seed,
        "objective": objective,
        "n_layer": n_layer,
        "sublayers": [space.least, space.most],
        "evaluations": budget.evaluations,
        "minutes": None if budget.evaluations else budget.minutes,
        **({"quick": True} if quick_score is not None else {}),
        **({"paper": asdict(paper)} if paper != DEFAULT_PAPER else {}),
        **(about or {}),
    }
    trial_log = TrialLog(log, facts, n_layer) if log is not None else None
    run = _Run(score, quick_score, space, budget, worth, objective, trial_log, progress, clock)
    cost = quick_cost if quick_score is not None and budget.evaluations is None else 1.0  # each counts as one
    try:
        with threadpool_limits(1, user_api="blas"):  # a strategy's matrices are small
            run.go(
                lambda plan: make_strategy(
                    strategy,
                    space,
                    seed=seed,
                    objective=objective,
                    worth=worth,
                    plan=plan,
                    quick_cost=cost,
                    paper=paper,
                )
            )
    finally:
        if trial_log is not None:
            trial_log.close()
    best = run.best
    if best is None:
        if run.interrupted:
            raise KeyboardInterrupt
        raise ValueError(
            f"after {len(run.trials)} evaluations there is no mask with {space.least} to {space.most} skipped "
            "sublayers; give a larger budget"
        )
    return SearchResult(
        mask=best.mask,
        front=run.front,
        evaluations=len(run.trials),
        strategy=strategy,
        seed=seed,
        seconds=run.seconds,
        objective=objective,
        trials=tuple(run.trials),
        interrupted=run.interrupted,
    )


def make_strategy(
    name: Strategy,
    space: Space,
    *,
    seed: int,
    objective: Objective,
    worth: Worth,
    plan: int,
    quick_cost: float = 1.0,
    paper: PaperSearch = DEFAULT_PAPER,
) -> MaskProposer:
    """Create a strategy by name; `plan` is the expected number of evaluations, `quick_cost` that of a quick score."""
    if name == "random":
        return Random(space, seed=seed)
    if name == "paper":
        return Paper(
            space,
            seed=seed,
            objective=objective,
            worth=worth,
            theta=paper.theta,
            acquisition=paper.acquisition,
        )
    return Guided(space, seed=seed, objective=objective, worth=worth, evaluations=plan, quick_cost=quick_cost)


class _Run:
    """The state of a running search."""

    def __init__(
        self,
        score: Callable[[LayerMask], Score],
        quick_score: Callable[[LayerMask], Score] | None,
        space: Space,
        budget: SearchBudget,
        worth: Worth,
        objective: Objective,
        log: TrialLog | None,
        progress: Callable[[SearchProgress], None] | None,
        clock: Callable[[], float],
    ) -> None:
        self._scores = {False: score, True: quick_score or score}
        self._quick = quick_score is not None
        self._space, self._budget, self._worth, self._objective = space, budget, worth, objective
        self._log, self._progress, self._clock = log, progress, clock
        self._known: dict[tuple[LayerMask, bool], Score | None] = {}
        self._before = 0.0  # seconds of a search that is resumed
        self._started = clock()
        self._last = 0.0  # seconds at the end of the last trial, as logged
        self.trials: list[Trial] = []
        self.front: tuple[FrontPoint, ...] = ()
        self.best: FrontPoint | None = None
        self.interrupted = False

    @property
    def seconds(self) -> float:
        return self._before + self._clock() - self._started

    def go(self, make: Callable[[int], MaskProposer]) -> None:
        """Search until the budget is spent, the strategy is exhausted, or Ctrl-C; `make` creates it for a plan."""
        logged = list(self._log.trials) if self._log is not None else []
        for entry in logged:
            self._take(entry.trial)
        self._before = logged[-1].seconds if logged else 0.0
        try:
            strategy = make(self._plan(logged))
            probes = 0 if self._budget.evaluations is not None else 1
            for trial in self.trials[probes:]:
                strategy.tell(trial.mask, trial.score)
            while not self._budget.spent(len(self.trials), self.seconds):
                mask = strategy.ask()
                if mask is None:
                    break
                trial = self._try(mask, self._quick and strategy.quick)
                strategy.tell(trial.mask, trial.score)
        except KeyboardInterrupt:
            self.interrupted = True

    def _plan(self, logged: list[LoggedTrial]) -> int:
        """Return the expected number of evaluations; a budget in minutes is converted by timing one random mask."""
        if self._budget.evaluations is not None:
            return self._budget.evaluations
        assert self._budget.minutes is not None
        if not logged:
            self._try(self._space.draw(np.random.default_rng(_PROBE)))
        first = logged[0].seconds if logged else self._last
        return max(1, int(_PLANNED * 60 * self._budget.minutes / max(first, 1e-3)))

    def _try(self, mask: LayerMask, quick: bool = False) -> Trial:
        key = (mask, quick)
        if key not in self._known:
            try:
                self._known[key] = self._scores[quick](mask)
            except ValueError:  # llama.cpp refuses it
                self._known[key] = None
        trial = Trial(mask, self._known[key], quick)
        self._last = round(self.seconds, 3)
        if self._log is not None:
            self._log.append(trial, self._last)
        self._take(trial)
        if self._progress is not None:
            self._progress(SearchProgress(len(self.trials), self._last, self._budget, self.best))
        return trial

    def _take(self, trial: Trial) -> None:
        self.trials.append(trial)
        self._known[trial.mask, trial.quick] = trial.score
        front = front_of((*self.front, trial), self._space, self._objective)
        if front != self.front:
            self.front = front
            self.best = max(front, key=lambda point: self._worth(point.mask, point.score))
