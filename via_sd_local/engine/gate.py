"""Routing of draft tokens to tiers: pure functions from logits to regions.

For a draft token v and the slim verifier's distribution q', region A keeps v, region B rewrites it to argmax q', and
region C escalates it to the full verifier. The idea is VIA-SD's (arXiv 2606.12243). `paper` is the rule of the paper;
`joint`, `confidence` and `ratio` are this project's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np

from ..arrays import Floats
from ..sampling.distribution import best_probability
from ..sampling.sampler import GREEDY, NoTokenLeft, Sampler

_SURE = 0.5  # max q' from which the slim verifier is sure, for rules without a threshold on it


class Region(Enum):
    """What happens to a draft token: A keeps it, B rewrites it, C escalates it to the full verifier."""

    A = "A"
    B = "B"
    C = "C"


@dataclass(frozen=True, slots=True)
class SlimVerdict:
    """The slim verifier's verdict on a draft.

    The first `kept` draft tokens are in region A. `region` is that of the next draft token, B or C; it is A if none is
    left. `token` is argmax q' at that position; -1 if the sampler rules out every token there. `sure` tells whether the
    slim verifier may emit it, either as a rewrite (region B) or as the bonus token after the draft.
    """

    kept: int
    region: Region
    token: int
    sure: bool


@dataclass(frozen=True, slots=True)
class Rule(ABC):
    """Two thresholds, which assign a draft token v to a region by its ratio q'(v) / max q' and the confidence max q'.

    A rule is written as `name:accept,rewrite`, e.g. `joint:0.5,0.5`: `str(rule)` writes that form, and `Rule.parse`
    reads it. ValueError for thresholds outside [0, 1].
    """

    name: ClassVar[str]
    accept: float
    rewrite: float

    def __post_init__(self) -> None:
        for name, value in (("accept", self.accept), ("rewrite", self.rewrite)):
            if not 0 <= value <= 1:
                raise ValueError(f"{self.name} threshold {name} is {value}; it must be a probability from 0 to 1")

    def __str__(self) -> str:
        return f"{self.name}:{self.accept:g},{self.rewrite:g}"

    @staticmethod
    def parse(text: str) -> Rule:
        """Read `"joint:0.5,0.5"`, `"confidence:…"`, `"ratio:…"` or `"paper:…"`; `"0.5,0.5"` is the joint rule.

        Raises ValueError for anything else, and for thresholds that the rule does not permit.
        """
        name, _, numbers = text.rpartition(":")
        kind = {rule.name: rule for rule in RULES}.get(name.strip() or JointRule.name)
        try:
            accept, rewrite = (float(number) for number in numbers.split(","))
        except ValueError:
            kind = None
        if kind is None:
            names = ", ".join(rule.name for rule in RULES)
            raise ValueError(
                f"thresholds {text!r} are not of the form RULE:ACCEPT,REWRITE, e.g. joint:0.5,0.5 (rules: {names})"
            )
        return kind(accept, rewrite)

    @abstractmethod
    def keeps(self, ratio: float, top: float) -> bool:
        """Whether v is in region A, given `ratio` = q'(v) / max q' and `top` = max q'."""

    @abstractmethod
    def rewrites(self, ratio: float, top: float) -> bool:
        """Whether v is in region B, given that it is not in A."""

    def emits(self, top: float) -> bool:
        """Whether the slim verifier may emit argmax q' as the bonus token after a draft that it kept."""
        return top >= self.rewrite

    def decides(self, top: float) -> bool:
        """Whether the slim verifier decides a position at a temperature, given `top` = max q' there.

        Unlike the regions, this must not depend on the drafted token: see `slim_sampling`.
        """
        return top >= max(self.accept, self.rewrite)

    def tighter(self) -> Rule:
        """Return the rule with both thresholds half as far from certainty."""
        return type(self)((1 + self.accept) / 2, (1 + self.rewrite) / 2)


@dataclass(frozen=True, slots=True)
class JointRule(Rule):
    """A: v = argmax q' and max q' ≥ `accept`; B: v ≠ argmax q' and max q' ≥ `rewrite`; C: otherwise.

    Of the three rules, it preserved most fidelity in our measurements, because it asks for confidence even if v agrees.
    """

    name: ClassVar[str] = "joint"

    def keeps(self, ratio: float, top: float) -> bool:
        return ratio >= 1.0 and top >= self.accept

    def rewrites(self, ratio: float, top: float) -> bool:
        return ratio < 1.0 and top >= self.rewrite


@dataclass(frozen=True, slots=True)
class ConfidenceRule(Rule):
    """A: q'(v) ≥ `accept` · max q'; B: not A, and max q' ≥ `rewrite`; C: otherwise."""

    name: ClassVar[str] = "confidence"

    def keeps(self, ratio: float, top: float) -> bool:
        return ratio >= self.accept

    def rewrites(self, ratio: float, top: float) -> bool:
        return ratio < 1.0 and top >= self.rewrite

    def decides(self, top: float) -> bool:
        return top >= self.rewrite


@dataclass(frozen=True, slots=True)
class RatioRule(Rule):
    """A: r ≥ `accept`; B: r < `rewrite`; C: in between, for the ratio r = q'(v) / max q'.

    This rule is this project's own, and not the paper's (`PaperRule`), which exchanges regions B and C: here, a token
    that q' all but rules out is rewritten, and a doubtful one is escalated. A bonus token needs max q' ≥ 0.5.
    ValueError unless 0 < `rewrite` < `accept`, since otherwise a region would be empty.
    """

    name: ClassVar[str] = "ratio"

    def __post_init__(self) -> None:
        Rule.__post_init__(self)
        if not 0 < self.rewrite < self.accept:
            raise ValueError(
                f"ratio thresholds are accept {self.accept} and rewrite {self.rewrite}; 0 < rewrite < accept, or a "
                "region is empty"
            )

    def keeps(self, ratio: float, top: float) -> bool:
        return ratio >= self.accept

    def rewrites(self, ratio: float, top: float) -> bool:
        return ratio < self.rewrite

    def emits(self, top: float) -> bool:
        return top >= _SURE

    def decides(self, top: float) -> bool:
        return self.emits(top)

    def tighter(self) -> RatioRule:
        """Return the rule with both thresholds half as far from certainty, which is 0 for `rewrite`."""
        return RatioRule((1 + self.accept) / 2, self.rewrite / 2)


@dataclass(frozen=True, slots=True)
class PaperRule(Rule):
    """A: r ≥ 1 - alpha1; B: 1 - alpha2 ≤ r < 1 - alpha1; C: r < 1 - alpha2, for the ratio r = q'(v) / max q'.

    This is VIA-SD's rule (arXiv 2606.12243): the slim verifier rewrites what it doubts, and the full one decides what
    it rules out. `accept` is alpha1, `rewrite` is alpha2; the rule is written as `paper:0.3,0.5`.

    ValueError unless alpha1 < alpha2. The thresholds that the paper prints, (alpha1, alpha2) = (0.5, 0.3), leave region
    B empty, since no r is both at least 1 - 0.3 = 0.7 and less than 1 - 0.5 = 0.5. The paper does not say when the slim
    verifier may add a token of its own after a draft that it kept; here that needs max q' ≥ 0.5, and so does its
    decision of a position at a temperature.
    """

    name: ClassVar[str] = "paper"

    def __post_init__(self) -> None:
        Rule.__post_init__(self)
        if not self.accept < self.rewrite:
            raise ValueError(
                f"paper thresholds are alpha1 {self.accept:g} and alpha2 {self.rewrite:g}; alpha1 must be below "
                "alpha2, or region B is empty (e.g. paper:0.3,0.5)"
            )

    def keeps(self, ratio: float, top: float) -> bool:
        return ratio >= 1 - self.accept

    def rewrites(self, ratio: float, top: float) -> bool:
        return ratio >= 1 - self.rewrite

    def emits(self, top: float) -> bool:
        return top >= _SURE

    def decides(self, top: float) -> bool:
        return self.emits(top)

    def tighter(self) -> PaperRule:
        """Return the rule with both thresholds half as far from certainty, which is 0 for either."""
        return PaperRule(self.accept / 2, self.rewrite / 2)


OWN_RULES: tuple[type[Rule], ...] = (JointRule, ConfidenceRule, RatioRule)
RULES: tuple[type[Rule], ...] = (*OWN_RULES, PaperRule)
DEFAULT_RULE = JointRule(0.5, 0.5)
PAPER_RULE = PaperRule(0.3, 0.5)  # the thresholds that the paper prints, in the order that leaves no region empty


def judge(
    rule: Rule,
    draft: Sequence[int],
    slim_logits: Floats,
    sampler: Sampler = GREEDY,
    end_tokens: frozenset[int] = frozenset(),
) -> SlimVerdict:
    """Judge a draft by the slim verifier's logits `[len(draft) + 1, n_vocab]`, of which row i judges `draft[i]`.

    q' is the softmax of the logits after the sampler's bias, penalties and grammar. The sampler accepts every token
    that is kept. A kept end token ends the block. A token of probability 0 is never kept. The slim verifier is unsure
    where the sampler rules out every token.
    """
    assert len(slim_logits) == len(draft) + 1
    for position, token in enumerate(draft):
        try:
            row = sampler.processed(slim_logits[position])
        except NoTokenLeft:
            return SlimVerdict(position, Region.C, -1, False)
        best = int(row.argmax())
        top = best_probability(row, best)
        ratio = float(np.exp(row[token] - row[best]))
        if not (rule.keeps(ratio, top) and ratio > 0):
            region = Region.B if rule.rewrites(ratio, top) else Region.C
            return SlimVerdict(position, region, best, region is Region.B)
        if token in end_tokens:
            return SlimVerdict(position + 1, Region.A, token, False)
        sampler.accept(token)
    try:
        row = sampler.processed(slim_logits[-1])
    except NoTokenLeft:
        return SlimVerdict(len(draft), Region.A, -1, False)
    best = int(row.argmax())
    return SlimVerdict(len(draft), Region.A, best, rule.emits(best_probability(row, best)))
