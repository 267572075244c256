"""The last stage: predict the speed of every mode, and choose the thresholds of each deviation level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...engine.costs import Costs
from ...engine.gate import OWN_RULES, ConfidenceRule, JointRule, Rule
from ...engine.policy import Mode, Policy
from ...profiles.profile import LEVELS, Level, Speeds, Thresholds
from ..recommendation import Recommendation, decide
from ..recording import Recording
from ..replay import replay
from ..thresholds import Candidates, Chosen, Outcome, calibrate, candidates
from ..workbench import Workbench

EXACT_RULES: tuple[Rule, ...] = (
    *(JointRule(accept, rewrite) for accept in (0.0, 0.3, 0.5, 0.7) for rewrite in (0.3, 0.5, 0.7, 0.9)),
    *(ConfidenceRule(accept, rewrite) for accept in (0.3, 0.7) for rewrite in (0.5, 0.7)),
)
_REPLAYS = 150  # roughly, for the progress bar
_DIGITS = 3  # of predicted tokens per second


@dataclass(frozen=True, slots=True)
class Grid:
    """The rules and deviation levels that a comparison tries; `candidates` lists the thresholds to try for a rule."""

    levels: Sequence[float] = LEVELS
    exact_rules: Sequence[Rule] = EXACT_RULES
    candidates: Candidates = candidates


@dataclass(frozen=True, slots=True)
class Comparison:
    """The predicted speeds of all modes, the thresholds by level, and the recommendation that follows from them."""

    speeds: Speeds
    levels: tuple[Level, ...]
    verdict: Recommendation


def compare_modes(bench: Workbench, searched: Recording, held_out: Recording, costs: Costs) -> Comparison:
    """Compare the modes on the recordings, with a progress bar; see `compare`."""
    replays = all(answer.slim is not None and answer.draft is not None for answer in held_out.answers)
    bench.bars.stage("thresholds", _REPLAYS if replays else 2)
    comparison = compare(searched, held_out, costs, tick=bench.bars.step)
    bench.bars.end()
    return comparison


def compare(
    searched: Recording,
    held_out: Recording,
    costs: Costs,
    grid: Grid | None = None,
    *,
    tick: Callable[[], None] = lambda: None,
) -> Comparison:
    """Predict the speed of every mode whose tiers were recorded, and choose thresholds for each level of `grid`.

    Speeds, and the evidence for thresholds, come from the held-out answers alone. `tick` is called after each of
    roughly 150 replays.
    """
    grid = grid or Grid()

    def speed(policy: Policy) -> float:
        result = replay(held_out, costs, policy).tokens_per_second
        tick()
        return result

    drafts, slim = (all(getattr(a, tier) is not None for a in held_out.answers) for tier in ("draft", "slim"))
    plain = speed(Policy(Mode.PLAIN))
    sd = speed(Policy(Mode.SD)) if drafts else None
    if not (drafts and slim):
        return Comparison(Speeds(plain, sd, None, None), (), decide(plain, sd, None, {}))
    exact = {rule: speed(Policy(Mode.EXACT, rule=rule)) for rule in grid.exact_rules}
    best = max(exact, key=lambda rule: exact[rule])
    tables = _level_tables(searched, held_out, costs, grid, tick)
    fastest = {level: _fastest(rules) for level, rules in tables.items()}
    verdict = decide(plain, sd, exact[best], fastest)
    levels = tuple(Level(level, verdict.levels[level].value, table) for level, table in tables.items())
    speeds = Speeds(_rounded(plain), sd and _rounded(sd), _rounded(exact[best]), str(best))
    return Comparison(speeds, levels, verdict)


def tiered(answers: Recording, costs: Costs, policy: Policy) -> Outcome:
    """Replay a policy of mode `tiered` over the answers in order, and return its deviations and its speed."""
    replayed = replay(answers, costs, policy)
    lenient = [stats.lenient for stats in replayed.stats]
    counts = tuple((hits - let, of) for (hits, of), let in zip(replayed.counts, lenient, strict=True))
    return Outcome(counts, replayed.tokens_per_second, sum(lenient))


def _level_tables(
    searched: Recording, held_out: Recording, costs: Costs, grid: Grid, tick: Callable[[], None]
) -> dict[float, dict[str, Thresholds]]:
    """Return the thresholds by level and by rule name, the levels in ascending order."""

    def attempt(answers: Recording) -> Callable[[Rule, float], Outcome]:
        return lambda rule, level: tiered(answers, costs, Policy(Mode.TIERED, rule=rule, max_deviation=level))

    chosen = calibrate(
        attempt(searched), attempt(held_out), grid.levels, OWN_RULES, candidates=grid.candidates, progress=tick
    )
    tables: dict[float, dict[str, Thresholds]] = {}
    smaller: dict[str, Thresholds] = {}
    for level in sorted(chosen):
        smaller = tables[level] = _thresholds(chosen[level], smaller)
    return tables


def _thresholds(rules: dict[str, Chosen], smaller: dict[str, Thresholds]) -> dict[str, Thresholds]:
    """Return the thresholds by rule name; those of the next smaller level where they are faster."""
    table = {}
    for name, chosen in rules.items():
        rule, outcome = chosen.rule, chosen.outcome
        table[name] = Thresholds(
            str(rule) if rule is not None else None,
            outcome.tokens,
            outcome.deviations,
            outcome.lenient,
            round(chosen.bound, 6),
            _rounded(outcome.tokens_per_second) if rule is not None else None,
            chosen.why,
        )
        before = smaller.get(name)
        if before is not None and (before.tokens_per_second or 0) > (table[name].tokens_per_second or 0):
            table[name] = before
    return table


def _fastest(rules: dict[str, Thresholds]) -> float | None:
    return max((t.tokens_per_second for t in rules.values() if t.tokens_per_second is not None), default=None)


def _rounded(tokens_per_second: float) -> float:
    return round(tokens_per_second, _DIGITS)
