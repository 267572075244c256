"""Statistics of one generation: counted events, from which every rate is derived on reading."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .gate import Region, SlimVerdict

PASS_KINDS = ("draft", "slim", "full", "resume")
PACE_DECISIONS = ("off", "probes", "slim_first", "full_first")


@dataclass(slots=True)
class PassCount:
    """The number of passes of one kind, of the tokens that they decoded, and of the seconds that they took."""

    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Stats:
    """Counters of one generation; the prefill of verifier and drafter is kept apart from the passes of decoding."""

    mode: str
    prompt_tokens: int = 0
    reused_tokens: int = 0  # tokens of the prompt that the verifier's cache held already
    draft_prefill_tokens: int = 0  # tokens of the text that the draft model had to read before its first draft
    completion_tokens: int = 0
    drafted: int = 0
    drafter_failed: bool = False
    accepted: int = 0
    blocks: int = 0  # blocks that the mode's loop decoded
    # by drafter, the number of drafts by their drafted and accepted tokens: {(drafted, accepted): drafts}
    drafts: dict[str, Counter[tuple[int, int]]] = field(default_factory=dict)
    # automatic decisions: no draft; a probe while drafting is off; the tier that saw a draft first
    pace: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PACE_DECISIONS, 0))
    refusal: str | None = None  # why the last decision was not to draft; None if it was to draft
    in_flight: int = 0  # tokens emitted since the last full pass
    max_in_flight: int = 0
    regions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("A", "B", "C", "bonus"), 0))
    settled: int = 0  # tokens of the slim tier whose K/V stay in the cache (write-through)
    audits: int = 0  # full passes over decisions of the slim tier that could not wait: `audit_every`, or no credit
    # lossy modes: tokens that the full model saw, by region (C: it decided them itself)
    audited: dict[str, int] = field(default_factory=lambda: dict.fromkeys("ABC", 0))
    deviations: dict[str, float] = field(default_factory=lambda: dict.fromkeys("AB", 0))  # of the slim tier, by audit
    lenient: int = 0  # draft tokens that the full model let through although it would choose others
    overshoot: dict[str, list[float]] = field(default_factory=lambda: {"A": [], "B": []})  # p(v) - q(v), if audited
    # tiered: tokens of the slim tier that audits passed over, and the deviations that they are assumed to have
    unaudited: int = 0
    assumed_deviations: float = 0.0
    assumed_rate: float = 1.0  # of deviations among tokens in flight
    tightened: int = 0  # times that the budget made the thresholds stricter
    passes: dict[str, PassCount] = field(default_factory=lambda: {kind: PassCount() for kind in PASS_KINDS})
    prefill_seconds: float = 0.0
    first_token_seconds: float = 0.0
    seconds: float = 0.0  # wall time inside the engine, prefill included, the consumer's own time excluded

    def audit(self, region: str, deviation: float, overshoot: float) -> None:
        """Count a token that the slim tier decided and the full model has audited."""
        self.audited[region] += 1
        self.deviations[region] += deviation
        self.overshoot[region].append(overshoot)

    def pass_over(self, tokens: int, deviations: float) -> None:
        """Count tokens of the slim tier that will never be audited, and the deviations assumed of them."""
        self.unaudited += tokens
        self.assumed_deviations += deviations

    def record(self, kind: str, tokens: int, seconds: float) -> None:
        """Count one pass."""
        if kind == "prefill":
            self.prefill_seconds += seconds
            return
        count = self.passes[kind]
        count.calls += 1
        count.tokens += tokens
        count.seconds += seconds

    def count_verdict(self, verdict: SlimVerdict) -> None:
        """Count the regions of a block that the slim verifier judged."""
        self.regions["A"] += verdict.kept
        if verdict.region is not Region.A:
            self.regions[verdict.region.value] += 1
        elif verdict.sure:
            self.regions["bonus"] += 1

    def judged(self, drafter: str, drafted: int, accepted: int) -> None:
        """Count a draft of `drafted` tokens, of which the first `accepted` were accepted."""
        self.drafted += drafted
        self.accepted += accepted
        self.drafts.setdefault(drafter, Counter())[drafted, accepted] += 1

    def emitted(self, tokens: int, *, confirmed: bool) -> None:
        """Count emitted tokens; `confirmed` says that the full model has seen them and all tokens before them."""
        self.completion_tokens += tokens
        self.in_flight = 0 if confirmed else self.in_flight + tokens
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    @property
    def draft_lengths(self) -> Counter[int]:
        """The number of drafts by the number of their tokens."""
        return self._histogram(0)

    @property
    def accepted_lengths(self) -> Counter[int]:
        """The number of drafts by the number of their accepted tokens."""
        return self._histogram(1)

    def _histogram(self, of: int) -> Counter[int]:
        counts: Counter[int] = Counter()
        for drafts in self.drafts.values():
            for lengths, n in drafts.items():
                counts[lengths[of]] += n
        return counts

    @property
    def acceptance_by_position(self) -> list[float]:
        """The acceptance rate at the first position of drafts, at the second one, and so on."""
        drafted, accepted = self.draft_lengths, self.accepted_lengths
        return [
            sum(n for length, n in accepted.items() if length > position)
            / sum(n for length, n in drafted.items() if length > position)
            for position in range(max(drafted, default=0))
        ]

    @property
    def why_off(self) -> str | None:
        """The reason why drafting was off for most of the text; None if it was not."""
        return self.refusal if 2 * self.pace["off"] > self.blocks else None

    @property
    def rejection_rate(self) -> float | None:
        """Rejected draft tokens as a share of the drafted ones; None without a draft."""
        return 1 - self.accepted / self.drafted if self.drafted else None

    @property
    def slim_deviation(self) -> float | None:
        """The share of emitted tokens that the slim tier decided and the full model would not choose.

        Tokens of the slim tier that were not audited, such as the last ones of a text, are assumed to deviate at the
        rate of earlier audits, at an upper confidence bound. None where the slim tier decided nothing.
        """
        audited = self.audited["A"] + self.audited["B"]
        if not self.completion_tokens or not audited + self.unaudited + self.in_flight:
            return None
        deviations = sum(self.deviations.values()) + self.assumed_deviations + self.in_flight * self.assumed_rate
        return min(deviations / self.completion_tokens, 1.0)

    @property
    def lenient_deviation(self) -> float | None:
        """The share of emitted tokens that the full model let through without choosing them; None before any token."""
        return self.lenient / self.completion_tokens if self.audited["C"] and self.completion_tokens else None

    @property
    def deviation(self) -> float | None:
        """The share of emitted tokens that are not the full model's choice, by the slim tier and by lenience together.

        None where neither is known.
        """
        if self.slim_deviation is None and self.lenient_deviation is None:
            return None
        return min((self.slim_deviation or 0.0) + (self.lenient_deviation or 0.0), 1.0)

    @property
    def acceptance_length(self) -> float | None:
        """Emitted tokens per block, the verifier's own included; None before the first block."""
        return (self.completion_tokens - 1) / self.blocks if self.blocks else None

    @property
    def tokens_per_second(self) -> float | None:
        """Emitted tokens after the first one per second of decoding, prefill excluded; None before the second token."""
        decoding = self.seconds - self.prefill_seconds
        return (self.completion_tokens - 1) / decoding if self.blocks and decoding > 0 else None

    @property
    def overhead_seconds(self) -> float:
        """Wall time outside llama_decode, in seconds."""
        return self.seconds - self.prefill_seconds - sum(count.seconds for count in self.passes.values())

    def to_json(self) -> dict[str, Any]:
        """Return all counters and rates by name."""
        return {
            "mode": self.mode,
            "prompt_tokens": self.prompt_tokens,
            "reused_tokens": self.reused_tokens,
            "draft_prefill_tokens": self.draft_prefill_tokens,
            "completion_tokens": self.completion_tokens,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "blocks": self.blocks,
            "draft_lengths": _by_size(self.draft_lengths),
            "accepted_lengths": _by_size(self.accepted_lengths),
            "acceptance_by_position": self.acceptance_by_position,
            "drafters": {
                name: {
                    "drafts": drafts.total(),
                    "drafted": sum(drafted * n for (drafted, _), n in drafts.items()),
                    "accepted": sum(accepted * n for (_, accepted), n in drafts.items()),
                }
                for name, drafts in self.drafts.items()
            },
            "drafter_failed": self.drafter_failed,
            "pace": dict(self.pace),
            "drafting_off": self.why_off,
            "max_in_flight": self.max_in_flight,
            "regions": dict(self.regions),
            "audits": self.audits,
            "audited": dict(self.audited),
            "deviations": dict(self.deviations),
            "settled": self.settled,
            "unaudited": self.unaudited + self.in_flight,
            "assumed_deviations": self.assumed_deviations + self.in_flight * self.assumed_rate,
            "lenient": self.lenient,
            "deviation": self.deviation,
            "slim_deviation": self.slim_deviation,
            "lenient_deviation": self.lenient_deviation,
            "overshoot": {region: summary(values) for region, values in self.overshoot.items()},
            "tightened": self.tightened,
            "rejection_rate": self.rejection_rate,
            "acceptance_length": self.acceptance_length,
            "passes": {
                kind: {"calls": count.calls, "tokens": count.tokens, "seconds": count.seconds}
                for kind, count in self.passes.items()
            },
            "prefill_seconds": self.prefill_seconds,
            "first_token_seconds": self.first_token_seconds,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
            "overhead_seconds": self.overhead_seconds,
        }


def _by_size(counts: Counter[int]) -> dict[str, int]:
    """Return a histogram with JSON's string keys, the smallest first."""
    return {str(size): counts[size] for size in sorted(counts)}


def summary(values: list[float]) -> dict[str, float] | None:
    """Return mean, 95th percentile and maximum; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return {
        "mean": sum(values) / len(values),
        "p95": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
        "max": ordered[-1],
    }
