"""From recorded answers to thresholds that keep a budget of deviation, without fooling oneself.

With a budget, the engine itself counts what the full verifier lets through; what the slim tier decides alone it sees
only later, in audits. So the slim tier's deviations are what must be within the budget beforehand.

Of many thresholds tried on one text, some look better than they are. So there are two texts. The first (that of the
search for the mask) only orders the thresholds of a rule, from the most careful to the fastest. Along this order, fixed
before, the second (held out until then) is asked for each: is the upper bound of the slim tier's deviations within the
level? The walk ends at the first no, and the fastest yes is taken. In such a walk errors do not add up: the chance that
the true share of any yes exceeds the level is that of a single bound (fixed-sequence testing; Angelopoulos et al.,
"Learn then test", 2021). The rules share the allowed 5 %, since the fastest of them is picked in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..engine.gate import RULES, ConfidenceRule, JointRule, RatioRule, Rule
from .evidence import CONFIDENCE, discounted_bound, least_evidence


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rule did: (deviations by the slim tier, tokens) of each answer, and the speed of all of them.

    `lenient` counts what the full tier let through on purpose, which the engine's budget bounds by itself.
    """

    counts: tuple[tuple[int, int], ...]
    tokens_per_second: float
    lenient: int = 0

    @property
    def tokens(self) -> int:
        return sum(of for _, of in self.counts)

    @property
    def deviations(self) -> int:
        """The number of tokens that the slim tier decided in another way than the full model would have."""
        return sum(hits for hits, _ in self.counts)

    @property
    def deviation(self) -> float:
        return self.deviations / self.tokens if self.tokens else 0.0


Try: TypeAlias = Callable[[Rule, float], Outcome]  # with a budget of deviation


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
    """The thresholds that are tried for a rule; the first one leaves the slim tier next to nothing."""
    if kind is JointRule:
        confidences = (1.0, 0.98, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3)
        return [JointRule(accept, rewrite) for accept in confidences for rewrite in (1.0, 0.9, 0.7, 0.5)]
    if kind is ConfidenceRule:
        ratios = (1.0, 0.9, 0.7, 0.5, 0.3)
        return [ConfidenceRule(accept, rewrite) for accept in ratios for rewrite in (1.0, 0.8, 0.5, 0.3)]
    return [RatioRule(accept, rewrite) for accept in (1.0, 0.9, 0.7, 0.5) for rewrite in (0.001, 0.03, 0.28)]


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
    """For each level, each rule's fastest thresholds that are known to keep it; `progress` hears of each trial.

    The order is by one level in the middle: it decides how far a walk gets, not what may be believed of it.
    """

    def heard(attempt: Try, rule: Rule, level: float) -> Outcome:
        outcome = attempt(rule, level)
        progress()
        return outcome

    confidence = 1 - (1 - CONFIDENCE) / len(kinds)
    middle = sorted(levels)[len(levels) // 2]
    chosen: dict[float, dict[str, Chosen]] = {level: {} for level in levels}
    for kind in kinds:
        steps = walk([(rule, heard(ordering, rule, middle)) for rule in candidates(kind)])
        for level in levels:
            step: tuple[Rule, Outcome, float] | None = None
            accepted: list[tuple[Rule, Outcome, float]] = []
            for rule in steps:
                outcome = heard(held_out, rule, level)
                step = (rule, outcome, discounted_bound(outcome.counts, confidence))
                if step[2] > level:
                    break
                accepted.append(step)
            # of equally fast ones the most careful
            assert step is not None, "every walk has a first step"
            best = max(accepted, key=lambda step: step[1].tokens_per_second, default=None)
            chosen[level][kind.name] = Chosen(*best) if best is not None else _turned_down(step, level, confidence)
    return chosen


def _turned_down(first: tuple[Rule, Outcome, float], level: float, confidence: float) -> Chosen:
    _, outcome, bound = first
    needed = least_evidence(level, confidence)
    if outcome.tokens < needed:
        why = f"too little evidence: {outcome.tokens} tokens, and at least {needed} are needed"
    else:
        why = f"even with the most careful thresholds, {outcome.deviations} of {outcome.tokens} tokens deviate"
    return Chosen(None, outcome, bound, why)
