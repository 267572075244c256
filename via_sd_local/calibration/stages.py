"""The stages of a calibration between the search and the profile: record, time, choose thresholds, compare modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..engine.costs import Costs
from ..engine.gate import RULES, ConfidenceRule, JointRule, Rule
from ..engine.measure import measure
from ..engine.policy import Mode, Policy
from ..profiles.profile import LEVELS, Agreement, DeltaCriterion, Level, Speeds, Thresholds
from ..tiers.drafter import Drafter
from ..tiers.verifier import Verifier
from . import thresholds
from .dimr import objective
from .recommendation import Recommendation, decide
from .recording import Recording
from .replay import replay
from .thresholds import Chosen, Outcome
from .top_logits import TopLogits

ROUND_SECONDS = 20.0  # at most, each
_EXACT_RULES: tuple[Rule, ...] = (
    *(JointRule(accept, rewrite) for accept in (0.0, 0.3, 0.5, 0.7) for rewrite in (0.3, 0.5, 0.7, 0.9)),
    *(ConfidenceRule(accept, rewrite) for accept in (0.3, 0.7) for rewrite in (0.5, 0.7)),
)
Tick = Callable[[], None]


def time_passes(verifier: Verifier, drafters: Sequence[Drafter], rounds: int, heard: Tick) -> Costs:
    """Return the median costs of passes over `rounds` measurements of every kind and size; call `heard` after each."""
    costs = Costs()
    for _ in range(rounds):
        for kind, row in measure(verifier, drafters, ROUND_SECONDS).to_json().items():
            if kind == "prefill":  # of the drafter; no decision depends on it
                continue
            for size, seconds in row.items():
                costs.observe(kind, int(size), seconds)
        heard()
    return Costs.from_json(costs.to_json())


@dataclass(frozen=True, slots=True)
class TierDistributions:
    """The tiers' distributions over all recorded positions, `[n]` each; None for a tier that was not recorded."""

    full: TopLogits
    slim: TopLogits | None
    draft: TopLogits | None

    @classmethod
    def of(cls, recording: Recording) -> TierDistributions:
        """Return the distributions over all answers of a recording, in order; ValueError for an empty recording."""

        def joined(parts: Sequence[TopLogits | None]) -> TopLogits | None:
            known = [part for part in parts if part is not None]
            return TopLogits.join(known) if len(known) == len(parts) else None

        full = TopLogits.join([answer.full for answer in recording.answers])
        slim = joined([answer.slim for answer in recording.answers])
        return cls(full, slim, joined([answer.draft for answer in recording.answers]))

    def agreements(self) -> dict[str, Agreement]:
        """Return the agreement of each pair of recorded tiers: p the draft model, q' the slim tier, q the full one."""
        pairs = {"p-q": (self.draft, self.full), "q'-q": (self.slim, self.full), "p-q'": (self.draft, self.slim)}
        return {
            name: Agreement(round(objective.agreement(a, b), 6), len(self.full))
            for name, (a, b) in pairs.items()
            if a is not None and b is not None
        }

    def delta(self) -> DeltaCriterion | None:
        """Return the paper's criterion, in nats per position; None where a tier was not recorded."""
        if self.slim is None or self.draft is None:
            return None

        def cost(judge: TopLogits, proposal: TopLogits) -> float:
            return float(np.mean(objective.relaxed_cost(*objective.paired(judge, proposal))))

        q_p, u_p, q_u = cost(self.full, self.draft), cost(self.slim, self.draft), cost(self.full, self.slim)
        return DeltaCriterion(*(round(value, 6) for value in (q_p, u_p, q_u, objective.delta(q_p, u_p, q_u))))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The predicted speeds of all modes, the thresholds by level, and the recommendation that follows from them."""

    speeds: Speeds
    levels: tuple[Level, ...]
    verdict: Recommendation


def compare(searched: Recording, held_out: Recording, costs: Costs, heard: Tick = lambda: None) -> Comparison:
    """Predict all modes that the recordings have tiers for; `heard` after each replay, of which there are some hundred.

    Speeds and the evidence for thresholds are of the held-out answers, and of nothing else.
    """
    tiers = TierDistributions.of(held_out)

    def speed(policy: Policy) -> float:
        result = replay(held_out, costs, policy).tokens_per_second
        heard()
        return result

    plain = speed(Policy(Mode.PLAIN))
    sd = speed(Policy(Mode.SD)) if tiers.draft is not None else None
    if tiers.draft is None or tiers.slim is None:
        return Comparison(Speeds(plain, sd, None, None), (), decide(plain, sd, None, {}))
    exact: dict[Rule, float] = {rule: speed(Policy(Mode.EXACT, rule=rule)) for rule in _EXACT_RULES}
    best = max(exact, key=lambda rule: exact[rule])

    def attempt(answers: Recording) -> thresholds.Try:
        return lambda rule, level: tiered(answers, costs, Policy(Mode.TIERED, rule=rule, max_deviation=level))

    chosen = thresholds.calibrate(attempt(searched), attempt(held_out), LEVELS, RULES, heard)
    tables: dict[float, dict[str, Thresholds]] = {}
    smaller: dict[str, Thresholds] = {}
    for level in sorted(chosen):
        smaller = tables[level] = _thresholds(chosen[level], smaller)
    fastest = {level: _fastest(rules) for level, rules in tables.items()}
    verdict = decide(plain, sd, exact[best], fastest)
    levels = tuple(Level(level, verdict.levels[level].value, table) for level, table in tables.items())
    return Comparison(Speeds(_3(plain), sd and _3(sd), _3(exact[best]), str(best)), levels, verdict)


def tiered(answers: Recording, costs: Costs, policy: Policy) -> Outcome:
    """Replay a policy of mode `tiered` over the answers in order, and return its deviations and its speed."""
    replayed = replay(answers, costs, policy)
    lenient = [int(stats.deviations["C"]) for stats in replayed.stats]
    counts = tuple((hits - let, of) for (hits, of), let in zip(replayed.counts, lenient, strict=True))
    return Outcome(counts, replayed.tokens_per_second, sum(lenient))


def _thresholds(rules: dict[str, Chosen], smaller: dict[str, Thresholds]) -> dict[str, Thresholds]:
    """Return the thresholds by rule; where those of the next smaller level are faster, these are taken."""
    table = {}
    for name, chosen in rules.items():
        rule, outcome = chosen.rule, chosen.outcome
        table[name] = Thresholds(
            str(rule) if rule is not None else None,
            outcome.tokens,
            outcome.deviations,
            outcome.lenient,
            round(chosen.bound, 6),
            _3(outcome.tokens_per_second) if rule is not None else None,
            chosen.why,
        )
        before = smaller.get(name)
        if before is not None and (before.tokens_per_second or 0) > (table[name].tokens_per_second or 0):
            table[name] = before
    return table


def _fastest(rules: dict[str, Thresholds]) -> float | None:
    return max((t.tokens_per_second for t in rules.values() if t.tokens_per_second is not None), default=None)


def _3(value: float) -> float:
    return round(value, 3)
