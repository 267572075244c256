"""Which tier decides a draft token: pure functions from logits to regions.

With draft token v and the slim distribution q': region A keeps v (q' agrees), region B rewrites it to argmax q'
(q' disagrees and is sure), region C asks the full verifier (q' is unsure). VIA-SD, arXiv 2606.12243, whose printed
thresholds leave B empty; the rules here cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

import numpy as np

from ..arrays import Floats
from ..sampling.sampler import GREEDY, Sampler, softmax_of


class Region(Enum):
    """Who decides a position of a block."""

    A = "A"
    B = "B"
    C = "C"


@dataclass(frozen=True, slots=True)
class SlimVerdict:
    """Where a block ends under the slim verifier.

    `kept` draft tokens are in region A; then comes `region`: B or C for the next draft token, A if none is left.
    `token` is argmax q' at that position, and `sure` whether q' may decide it by itself (region B, or the bonus).
    """

    kept: int
    region: Region
    token: int
    sure: bool


def _check_probabilities(rule: str, **thresholds: float) -> None:
    for name, value in thresholds.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{rule} threshold {name} is {value}; it is a probability, from 0 to 1")


@dataclass(frozen=True, slots=True)
class JointRule:
    """A: v is argmax q' and max q' ≥ `accept`; B: v is not, and max q' ≥ `rewrite`; else C.

    Demanding confidence for agreement too is what kept most fidelity in our measurements.
    """

    name: ClassVar[str] = "joint"
    accept: float
    rewrite: float

    def __post_init__(self) -> None:
        _check_probabilities(self.name, accept=self.accept, rewrite=self.rewrite)

    def keeps(self, ratio: float, top: float) -> bool:
        return ratio >= 1.0 and top >= self.accept

    def rewrites(self, ratio: float, top: float) -> bool:
        return ratio < 1.0 and top >= self.rewrite

    def tighter(self) -> JointRule:
        """Half as far from certainty."""
        return JointRule((1 + self.accept) / 2, (1 + self.rewrite) / 2)

    def emits(self, top: float) -> bool:
        return top >= self.rewrite


@dataclass(frozen=True, slots=True)
class ConfidenceRule:
    """A: q'(v) ≥ `accept` · max q'; B: not so, and max q' ≥ `rewrite`; else C."""

    name: ClassVar[str] = "confidence"
    accept: float
    rewrite: float

    def __post_init__(self) -> None:
        _check_probabilities(self.name, accept=self.accept, rewrite=self.rewrite)

    def keeps(self, ratio: float, top: float) -> bool:
        return ratio >= self.accept

    def rewrites(self, ratio: float, top: float) -> bool:
        return ratio < 1.0 and top >= self.rewrite

    def tighter(self) -> ConfidenceRule:
        """Half as far from certainty."""
        return ConfidenceRule((1 + self.accept) / 2, (1 + self.rewrite) / 2)

    def emits(self, top: float) -> bool:
        return top >= self.rewrite


@dataclass(frozen=True, slots=True)
class RatioRule:
    """The paper's form, on the ratio r = q'(v) / max q' alone: A: r ≥ `accept`; B: r < `rewrite`; C: in between.

    `rewrite` must lie below `accept`, or a region would be empty; a bonus token needs max q' ≥ 0.5.
    """

    name: ClassVar[str] = "ratio"
    accept: float
    rewrite: float

    def __post_init__(self) -> None:
        _check_probabilities(self.name, accept=self.accept, rewrite=self.rewrite)
        if not 0 < self.rewrite < self.accept:
            raise ValueError(
                f"ratio thresholds are accept {self.accept} and rewrite {self.rewrite}; 0 < rewrite < accept, or a "
                "region is empty"
            )

    def keeps(self, ratio: float, top: float) -> bool:
        return ratio >= self.accept

    def rewrites(self, ratio: float, top: float) -> bool:
        return ratio < self.rewrite

    def tighter(self) -> RatioRule:
        """Half as far from certainty."""
        return RatioRule((1 + self.accept) / 2, self.rewrite / 2)

    def emits(self, top: float) -> bool:
        return top >= 0.5


Rule: TypeAlias = JointRule | ConfidenceRule | RatioRule

RULES: tuple[type[Rule], ...] = (JointRule, ConfidenceRule, RatioRule)
DEFAULT_RULE = JointRule(0.5, 0.5)


def judge(
    rule: Rule,
    draft: Sequence[int],
    slim_logits: Floats,
    sampler: Sampler = GREEDY,
    end_tokens: frozenset[int] = frozenset(),
) -> SlimVerdict:
    """Where a block of draft tokens ends; `slim_logits` is `[len(draft) + 1, n_vocab]`, row i judges draft[i].

    q' is the softmax of the logits as the sampler's bias, penalties and grammar leave them; the sampler accepts each
    token that is kept. A kept end token ends the block. A token that the sampler rules out is never kept.
    """
    assert len(slim_logits) == len(draft) + 1
    for position, token in enumerate(draft):
        row = sampler.processed(slim_logits[position])
        best = int(row.argmax())
        shifted = row - row[best]
        top = float(1.0 / np.exp(shifted).sum())
        ratio = float(np.exp(shifted[token]))
        if not (rule.keeps(ratio, top) and ratio > 0):
            region = Region.B if rule.rewrites(ratio, top) else Region.C
            return SlimVerdict(position, region, best, region is Region.B)
        if token in end_tokens:
            return SlimVerdict(position + 1, Region.A, token, False)
        sampler.accept(token)
    row = sampler.processed(slim_logits[-1])
    best = int(row.argmax())
    return SlimVerdict(len(draft), Region.A, best, rule.emits(softmax_of(row, best)))


def parse_rule(text: str) -> Rule:
    """Read `"joint:0.5,0.5"`, `"confidence:…"` or `"ratio:…"` (accept, rewrite); `"0.5,0.5"` is joint.

    Raises ValueError for anything else.
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
