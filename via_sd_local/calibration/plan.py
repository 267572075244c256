"""The plan of a calibration, checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

Strategy: TypeAlias = Literal["guided", "paper", "random"]
STRATEGIES: tuple[Strategy, ...] = ("guided", "paper", "random")
DEFAULT_MINUTES = 10.0

Acquisition: TypeAlias = Literal["ei", "gp-ucb"]
ACQUISITIONS: tuple[Acquisition, ...] = ("ei", "gp-ucb")


@dataclass(frozen=True, slots=True)
class PaperSearch:
    """The options of strategy `paper`; raises ValueError that names the option, the value and the valid range.

    `alpha` and `beta` are the margins of the paper's KL cost. Every `theta`-th candidate comes from Bayesian
    optimisation, by expected improvement (`ei`) or by the confidence bound of a Gaussian process (`gp-ucb`).
    `keep_ends` keeps the first and the last layer in every mask. The search minimises the KL cost if the skip ratio is
    fixed, and otherwise maximises the predicted speed; `by_cost` minimises the cost also then, although it is least for
    masks that skip few sublayers.
    """

    alpha: float = 0.3
    beta: float = 0.7
    theta: int = 5
    acquisition: Acquisition = "ei"
    keep_ends: bool = False
    by_cost: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1:
            raise ValueError(f"alpha is {self.alpha}; it must be a margin of at least 0 (none) and below 1")
        if not 0 < self.beta <= 1:
            raise ValueError(f"beta is {self.beta}; it must be a margin above 0 and at most 1 (none)")
        if self.theta < 1:
            raise ValueError(f"theta is {self.theta}; every theta-th candidate is Bayesian, so it must be at least 1")
        if self.acquisition not in ACQUISITIONS:
            raise ValueError(f"acquisition is {self.acquisition!r}; it is one of {', '.join(ACQUISITIONS)}")


DEFAULT_PAPER = PaperSearch()


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a calibration; raises ValueError that names the option, the value and the valid range.

    Models are catalogue names or paths; `text` is a file of prompts, None for the shipped ones. `paper` holds the
    options of strategy `paper`. The search for a mask ends after `minutes` or `evaluations`, by default after 10
    minutes; a `mask` replaces it. `answer_tokens` limits the length of the verifier's answers, in tokens.
    `check_memory` rejects models that together exceed the main memory.
    """

    verifier: str
    draft: str | None = None
    text: str | None = None
    strategy: Strategy = "guided"
    paper: PaperSearch = DEFAULT_PAPER
    minutes: float | None = None
    evaluations: int | None = None
    skip_ratio: float | None = None
    mask: str | None = None
    seed: int = 0
    threads: int | None = None
    answer_tokens: int = 160
    check_memory: bool = True

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy is {self.strategy!r}; it is one of {', '.join(STRATEGIES)}")
        if self.strategy != "paper" and self.paper != DEFAULT_PAPER:
            names = [each.name for each in fields(PaperSearch) if getattr(self.paper, each.name) != each.default]
            raise ValueError(f"{names[0]} is an option of strategy 'paper'; this is strategy {self.strategy!r}")
        if self.minutes is not None and not 0 < self.minutes < float("inf"):
            raise ValueError(f"minutes is {self.minutes}; it must be above 0")
        for name, value, least in (
            ("evaluations", self.evaluations, 1),
            ("answer_tokens", self.answer_tokens, 2),
            ("seed", self.seed, 0),
            ("threads", self.threads, 1),
        ):
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}")
        if self.minutes is not None and self.evaluations is not None:
            raise ValueError("minutes and evaluations are two budgets; give one of them")
        if self.skip_ratio is not None and not 0 < self.skip_ratio < 1:
            raise ValueError(f"skip_ratio is {self.skip_ratio}; it is a share of the sublayers between 0 and 1")
        if self.mask is not None:
            searching = (self.minutes, self.evaluations, self.skip_ratio)
            if any(value is not None for value in searching):
                raise ValueError("a mask was given, so there is no search: leave out minutes, evaluations, skip_ratio")

    @property
    def minutes_of_search(self) -> float:
        """The time limit of the search, in minutes, if it is not limited in evaluations."""
        return DEFAULT_MINUTES if self.minutes is None else self.minutes
