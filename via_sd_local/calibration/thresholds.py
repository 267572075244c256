"""The choice of thresholds that keep a deviation budget, by a test that does not profit from trying many.

With a budget, the engine itself counts the tokens that the full verifier lets through; the deviations of the slim tier
it sees only later, in audits. Calibration therefore bounds the deviations of the slim tier.

If many thresholds are tried on one text, some look better than they are, so there are two texts. The first (that of the
search for the mask) only orders the thresholds of a rule, from the most conservative to the fastest. In this order,
which is fixed beforehand, each is tested on the second, held-out text: is the upper bound of the slim tier's deviations
within the level? The walk ends at the first failure, and the fastest thresholds that passed are chosen. The errors of
such a walk do not accumulate: the chance that the true share exceeds the level for any that passed is that of a single
bound (fixed-sequence testing; Angelopoulos et al., "Learn then test", 2021). The rules share the allowed error of 5 %,
because the fastest of them is chosen in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..engine.gate import OWN_RULES, ConfidenceRule, JointRule, RatioRule, Rule
from .evidence import CONFIDENCE, discounted_bound, least_evidence


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of replaying a rule: (deviations of the slim tier, tokens) by answer, and tokens per second over all.

    `lenient` is the number of tokens that the full tier let through, which the engine's budget bounds by itself.
    """

    counts: tuple[tuple[int, int], ...]
    tokens_per_second: float
    lenient: int = 0

    @property
    def tokens(self) -> int:
        return sum(of for _, of in self.counts)

    @property
    def deviations(self) -> int:
        """The number of tokens that the slim tier chose differently from the full model."""
        return sum(hits for hits, _ in self.counts)

    @property
    def deviation(self) -> float:
        return self.deviations / self.tokens if self.tokens else 0.0


Attempt: TypeAlias = Callable[[Rule, float], Outcome]  # a rule at a deviation budget
Candidates: TypeAlias = Callable[[type[Rule]], list[Rule]]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The thresholds of a rule for a level, with their outcome and upper bound on the held-out text.

    If no thresholds passed, `rule` is None, `why` gives the reason, and the figures are those of the first that failed.
    """

    rule: Rule | None
    outcome: Outcome
    bound: float
    why: str | None = None


def candidates(kind: type[Rule]) -> list[Rule]:
    """Return the thresholds to try for a rule; the first leave the slim tier almost nothing to decide."""
    if kind is JointRule:
        confidences = (1.0, 0.98, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3)
        return [JointRule(accept, rewrite) for accept in confidences for rewrite in (1.0, 0.9, 0.7, 0.5)]
    if kind is ConfidenceRule:
        ratios = (1.0, 0.9, 0.7, 0.5, 0.3)
        return [ConfidenceRule(accept, rewrite) for accept in ratios for rewrite in (1.0, 0.8, 0.5, 0.3)]
    return [RatioRule(accept, rewrite) for accept in (1.0, 0.9, 0.7, 0.5) for rewrite in (0.001, 0.03, 0.28)]


def walk(tried: Sequence[tuple[Rule, Outcome]]) -> list[Rule]:
    """Return the order in which to test: each rule is faster than those before it and deviates at least as much."""
    steps: list[Rule] = []
    fastest = 0.0
    for rule, outcome in sorted(tried, key=lambda item: (item[1].deviation, item[1].tokens_per_second)):
        if outcome.tokens_per_second > fastest:
            steps.append(rule)
            fastest = outcome.tokens_per_second
    return steps


def calibrate(
    ordering: Attempt,
    held_out: Attempt,
    levels: Sequence[float],
    kinds: Sequence[type[Rule]] = OWN_RULES,
    *,
    candidates: Candidates = candidates,
    progress: Callable[[], None] = lambda: None,
) -> dict[float, dict[str, Chosen]]:
    """Return, for each level and rule name, the fastest thresholds that keep the level.

    `ordering` and `held_out` replay a rule on the two texts. `progress` is called after each replay. The rules are
    ordered at the middle level; this determines how far a walk gets, not whether its results are valid.
    """

    def replayed(attempt: Attempt, rule: Rule, level: float) -> Outcome:
        outcome = attempt(rule, level)
        progress()
        return outcome

    confidence = 1 - (1 - CONFIDENCE) / len(kinds)
    middle = sorted(levels)[len(levels) // 2]
    chosen: dict[float, dict[str, Chosen]] = {level: {} for level in levels}
    for kind in kinds:
        steps = walk([(rule, replayed(ordering, rule, middle)) for rule in candidates(kind)])
        for level in levels:
            passed: list[Chosen] = []
            failed: Chosen | None = None
            for rule in steps:
                outcome = replayed(held_out, rule, level)
                bound = discounted_bound(outcome.counts, confidence)
                if bound > level:
                    failed = Chosen(None, outcome, bound, _why_none(outcome, level, confidence))
                    break
                passed.append(Chosen(rule, outcome, bound))
            # max returns the first of equally fast ones, which is the most conservative
            best = max(passed, key=lambda one: one.outcome.tokens_per_second, default=failed)
            assert best is not None, "every walk has a first step"
            chosen[level][kind.name] = best
    return chosen


def _why_none(outcome: Outcome, level: float, confidence: float) -> str:
    """Explain why the first thresholds of a walk already failed."""
    needed = least_evidence(level, confidence)
    if outcome.tokens < needed:
        return f"too little evidence: {outcome.tokens} tokens, and at least {needed} are needed"
    return f"even with the most conservative thresholds, {outcome.deviations} of {outcome.tokens} tokens deviate"
