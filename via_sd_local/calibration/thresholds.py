"""From recorded answers to thresholds that keep a budget of deviation, without fooling oneself.

Of many thresholds tried on one text, some look better than they are. So there are two texts. The first (that of the
search for the mask) only orders the thresholds of a rule, from the most careful to the fastest. Along this order, fixed
before, the second (held out until then) is asked for each: is the upper bound of its deviation within the level? The
walk ends at the first no, and the fastest yes is taken. In such a walk errors do not add up: the chance that the true
share of any yes exceeds the level is that of a single bound (fixed-sequence testing; Angelopoulos et al., "Learn then
test", 2021). The rules share the allowed 5 %, since the fastest of them is picked in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..gate import RULES, ConfidenceRule, JointRule, RatioRule, Rule
from .evidence import CONFIDENCE, discounted_bound, least_evidence

_CONFIDENCES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rule did: (deviations, tokens) of each answer, and the speed of all of them in tokens a second."""

    counts: tuple[tuple[int, int], ...]
    tokens_per_second: float

    @property
    def tokens(self) -> int:
        return sum(of for _, of in self.counts)

    @property
    def deviations(self) -> int:
        return sum(hits for hits, _ in self.counts)

    @property
    def deviation(self) -> float:
        return self.deviations / self.tokens if self.tokens else 0.0


Try: TypeAlias = Callable[[Rule], Outcome]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rule's thresholds for a level, or None and why; `outcome` and `bound` are by the held-out text.

    Where there is none, they are those of the first candidate that was turned down.
    """

    rule: Rule | None
    outcome: Outcome
    bound: float
    why: str | None = None


def candidates(kind: type[Rule]) -> list[Rule]:
    """The thresholds that are tried for a rule."""
    if kind is JointRule:
        return [JointRule(accept, rewrite) for accept in _CONFIDENCES for rewrite in (0.5, 0.7, 0.9, 0.98, 1.0)]
    if kind is ConfidenceRule:
        ratios = (0.1, 0.3, 0.5, 0.7, 0.85, 1.0)
        return [ConfidenceRule(accept, rewrite) for accept in ratios for rewrite in (0.3, 0.5, 0.7, 0.9, 0.98, 1.0)]
    ratios = (0.3, 0.5, 0.7, 0.85, 0.95, 1.0)
    return [RatioRule(accept, rewrite) for accept in ratios for rewrite in (0.001, 0.01, 0.1, 0.28) if rewrite < accept]


def walk(tried: Sequence[tuple[Rule, Outcome]]) -> list[Rule]:
    """From the most careful to the fastest: each deviates no less, and is faster, than the one before."""
    steps: list[Rule] = []
    fastest = 0.0
    for rule, outcome in sorted(tried, key=lambda item: (item[1].deviation, item[1].tokens_per_second)):
        if outcome.tokens_per_second > fastest:
            steps.append(rule)
            fastest = outcome.tokens_per_second
    return steps


def calibrate(
    ordering: Try,
    held_out: Try,
    levels: Sequence[float],
    kinds: Sequence[type[Rule]] = RULES,
    progress: Callable[[], None] = lambda: None,
) -> dict[float, dict[str, Chosen]]:
    """For each level, each rule's fastest thresholds that are known to keep it; `progress` hears of each trial."""

    def heard(attempt: Try, rule: Rule) -> Outcome:
        outcome = attempt(rule)
        progress()
        return outcome

    confidence = 1 - (1 - CONFIDENCE) / len(kinds)
    chosen: dict[float, dict[str, Chosen]] = {level: {} for level in levels}
    for kind in kinds:
        steps = walk([(rule, heard(ordering, rule)) for rule in candidates(kind)])
        seen: list[tuple[Rule, Outcome, float]] = []
        for level in sorted(levels):
            accepted: list[tuple[Rule, Outcome, float]] = []
            for index, rule in enumerate(steps):
                if index == len(seen):
                    outcome = heard(held_out, rule)
                    seen.append((rule, outcome, discounted_bound(outcome.counts, confidence)))
                if seen[index][2] > level:
                    break
                accepted.append(seen[index])
            if accepted:  # of equally fast ones the most careful
                chosen[level][kind.name] = Chosen(*max(accepted, key=lambda step: step[1].tokens_per_second))
            else:
                chosen[level][kind.name] = _turned_down(seen[0], level, confidence)
    return chosen


def _turned_down(first: tuple[Rule, Outcome, float], level: float, confidence: float) -> Chosen:
    _, outcome, bound = first
    needed = least_evidence(level, confidence)
    if outcome.tokens < needed:
        why = f"too little evidence: {outcome.tokens} tokens, and at least {needed} are needed"
    else:
        why = f"even the most careful thresholds deviate in {outcome.deviations} of {outcome.tokens} tokens"
    return Chosen(None, outcome, bound, why)
