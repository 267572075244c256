"""Which tier decides a draft token: pure functions from logits to regions.

With draft token v and the slim distribution q': region A keeps v (q' agrees), region B rewrites it to argmax q'
(q' disagrees and is sure), region C asks the full verifier (q' is unsure). VIA-SD, arXiv 2606.12243; the paper's
printed thresholds leave B empty, so B is decided by the confidence max q' in every rule here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

import numpy as np

from .arrays import Floats


class Region(Enum):
    """Who decides a position of a block."""

    A = "A"
    B = "B"
    C = "C"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where a block ends under the slim verifier.

    `kept` draft tokens are in region A; then comes `region`: B or C for the next draft token, A if none is left.
    `token` is argmax q' at that position, and `sure` whether q' may emit it by itself (region B, or the bonus).
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

    def agrees(self, ratio: float, top: float) -> bool:
        return ratio >= 1.0 and top >= self.accept


@dataclass(frozen=True, slots=True)
class RatioRule:
    """A: q'(v) ≥ `accept` · max q'; B: not so, and max q' ≥ `rewrite`; else C."""

    name: ClassVar[str] = "ratio"
    accept: float
    rewrite: float

    def __post_init__(self) -> None:
        _check_probabilities(self.name, accept=self.accept, rewrite=self.rewrite)

    def agrees(self, ratio: float, top: float) -> bool:
        return ratio >= self.accept


Rule: TypeAlias = JointRule | RatioRule

DEFAULT_RULE = JointRule(0.5, 0.5)


def judge(rule: Rule, draft: Sequence[int], slim_logits: Floats) -> Verdict:
    """Where a block of draft tokens ends; `slim_logits` is `[len(draft) + 1, n_vocab]`, row i judges draft[i]."""
    assert len(slim_logits) == len(draft) + 1
    for position in range(len(draft) + 1):
        row = slim_logits[position]
        best = int(row.argmax())
        shifted = row - row[best]
        top = float(1.0 / np.exp(shifted).sum())
        sure = top >= rule.rewrite
        if position == len(draft):
            return Verdict(position, Region.A, best, sure)
        if not rule.agrees(float(np.exp(shifted[draft[position]])), top):
            # a rule may turn down the very token that it would rewrite to; only q can decide there
            sure = sure and best != draft[position]
            return Verdict(position, Region.B if sure else Region.C, best, sure)
    raise AssertionError("unreachable")


def parse_rule(text: str) -> Rule:
    """Read `"joint:0.5,0.5"` or `"ratio:0.7,0.5"` (accept, rewrite); `"0.5,0.5"` is joint. ValueError otherwise."""
    name, _, numbers = text.rpartition(":")
    kinds = {rule.name: rule for rule in (JointRule, RatioRule)}
    kind = kinds.get(name.strip() or JointRule.name)
    try:
        accept, rewrite = (float(number) for number in numbers.split(","))
    except ValueError:
        kind = None
    if kind is None:
        raise ValueError(
            f"thresholds {text!r} are not of the form RULE:ACCEPT,REWRITE, e.g. joint:0.5,0.5 or ratio:0.7,0.5"
        )
    return kind(accept, rewrite)
