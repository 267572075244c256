"""The real engine on recorded tiers and a simulated clock: what a policy would do, in a fraction of a second.

Rows are looked up by position: after a token that is not the recorded text's, the tiers say what they said after the
right one. That is what makes a replay cheap, and why its figures are predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import ne

import numpy as np

from ..arrays import Floats
from ..engine.costs import Costs
from ..engine.engine import Engine
from ..engine.policy import Policy
from ..engine.stats import Stats
from ..sampling.distribution import TokenIds
from ..sampling.params import LogitsProcessor, SamplingParams
from ..sampling.sampler import Sampler, TemperatureSampler
from ..tiers.cache import Recorder, common_prefix, ignore
from ..tiers.drafter import NO_HINTS, Draft, Drafter, Hints
from .recording import Recorded, Recording
from .top_logits import TopLogits, log_rest

_KEPT = 8  # of a row's tokens; all others share what is left
_FILLERS = 64  # tokens that stand for all others


@dataclass(frozen=True, slots=True)
class Replayed:
    """The sums over all answers; `deviations` are emitted tokens that are not the full tier's choice.

    `tokens` are those after the first of each answer, `seconds` those of decoding (prefill excluded).
    """

    tokens: int
    seconds: float
    deviations: int
    stats: list[Stats] = field(repr=False, compare=False)
    counts: list[tuple[int, int]] = field(repr=False)  # deviations and tokens of each answer

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def deviation(self) -> float:
        """Deviations as a share of all tokens."""
        return self.deviations / self.tokens if self.tokens else 0.0


def replay(recording: Recording, costs: Costs, policy: Policy, *, overhead: float = 0.0) -> Replayed:
    """Run a policy greedily over every answer of a recording, in order, as one engine would.

    `costs` are both the clock and what the engine knows in advance: kinds full, and as the mode needs them draft, slim,
    resume. `overhead` is in seconds a pass. ValueError when the recording lacks a tier that the mode needs.
    """
    needs = {"slim": policy.mode.uses_slim_tier, "draft": policy.mode.drafts}
    for tier, needed in needs.items():
        if needed and any(getattr(answer, tier) is None for answer in recording.answers):
            raise ValueError(f"mode {policy.mode.value} needs the {tier} tier, which this recording does not have")
    clock = _Clock(costs, overhead)
    tables = _Tables(recording)
    verifier = _RecordedVerifier(tables, clock)
    drafter = _RecordedDrafter(tables, clock) if policy.mode.drafts else None
    engine = Engine(verifier, drafter, policy, Costs.from_json(costs.to_json()))
    counts, every = [], []
    for answer in recording.answers:
        tables.show(answer)
        verifier.reset()
        emitted = [token for step in engine.generate([0], max_tokens=len(answer)) for token in step.tokens]
        counts.append((sum(map(ne, emitted[1:], tables.choice[1:])), len(emitted) - 1))
        every.append(engine.stats)
    deviations, tokens = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    return Replayed(tokens, clock.now, deviations, every, counts)


class _Clock:
    """Sums what passes would take."""

    def __init__(self, costs: Costs, overhead: float) -> None:
        self.costs, self.overhead, self.now = costs, overhead, 0.0

    def passed(self, kind: str, tokens: int, recorder: Recorder) -> None:
        seconds = 0.0 if kind == "prefill" else self.costs.of(kind, tokens)
        recorder(kind, tokens, seconds)
        self.now += seconds + (self.overhead if seconds else 0.0)


class _Tables:
    """The rows of one answer at a time, over a small vocabulary of its own."""

    def __init__(self, recording: Recording) -> None:
        self.n_vocab = max((len(_tokens_of(answer)) for answer in recording.answers), default=1) + _FILLERS

    def show(self, answer: Recorded) -> None:
        """Bring in the rows of an answer."""
        known = _tokens_of(answer)
        self.full = self._rows(answer.full, known)
        self.slim = self._rows(answer.slim, known) if answer.slim is not None else None
        self.draft = np.searchsorted(known, answer.draft.best).tolist() if answer.draft is not None else []
        self.confidence = answer.draft.confidence.tolist() if answer.draft is not None else []
        self.choice = np.searchsorted(known, answer.full.best).tolist()

    def _rows(self, top: TopLogits, known: TokenIds) -> Floats:
        """Log-probabilities `[n, n_vocab]`; what is not kept is spread evenly over the fillers."""
        rows = np.full((len(top), self.n_vocab), -60.0, np.float32)
        columns = np.searchsorted(known, top.ids[:, :_KEPT])
        np.put_along_axis(rows, columns, top.log_probs[:, :_KEPT], axis=1)
        filler = log_rest(top.log_probs[:, :_KEPT]) - np.log(_FILLERS)
        rows[:, -_FILLERS:] = np.minimum(filler, top.log_probs[:, :1] - 1e-3)
        return rows


def _tokens_of(answer: Recorded) -> TokenIds:
    """Return the tokens that are among the most probable ones of any tier, sorted."""
    tops = [top for top in (answer.full, answer.slim, answer.draft) if top is not None]
    known: TokenIds = np.unique(np.concatenate([top.ids[:, :_KEPT].ravel() for top in tops]))
    return known


class _RecordedVerifier:
    """An `EngineVerifier` without a cache: position i of the text (a one-token prompt, then the answer) shows row i."""

    name = "recording"
    n_ctx = 1 << 20
    n_batch = 1 << 20
    n_bytes = 1 << 40  # audits may look at every row
    end_tokens: frozenset[int] = frozenset()
    can_rewind = True
    has_slim_tier = True

    def __init__(self, tables: _Tables, clock: _Clock) -> None:
        self._tables, self._clock = tables, clock
        self.n_vocab = tables.n_vocab
        self.n_kv = 0
        self.n_full = 0
        self.n_exact = 0

    @property
    def can_resume(self) -> bool:
        return self.n_kv > self.n_full and self._clock.costs.knows("resume")

    def full(
        self,
        tokens: Sequence[int],
        rows: int,
        kind: str = "full",
        *,
        recorder: Recorder = ignore,
        resume: bool = True,
    ) -> Floats:
        resumes = resume and not tokens and self.can_resume
        self.n_kv += len(tokens)
        self._clock.passed("resume" if resumes else kind, self.n_kv - self.n_full, recorder)
        self.n_exact = self.n_kv if self.n_exact == self.n_full else self.n_exact
        self.n_full = self.n_kv
        return self._tables.full[self.n_kv - rows : self.n_kv]

    def slim(self, tokens: Sequence[int], *, write_through: bool = False, recorder: Recorder = ignore) -> Floats:
        self._clock.passed("slim", len(tokens), recorder)
        self.n_kv += len(tokens)
        assert self._tables.slim is not None
        return self._tables.slim[self.n_kv - len(tokens) : self.n_kv]

    def rewind(self, n: int, recorder: Recorder = ignore) -> None:
        self.n_kv = min(self.n_kv, n)
        self.n_full, self.n_exact = min(self.n_full, n), min(self.n_exact, n)

    def settle(self, n: int) -> None:
        self.n_full = max(self.n_full, n)

    def reopen(self, n: int) -> None:
        self.n_full = min(self.n_full, max(n, self.n_exact))

    def reuse(self, tokens: Sequence[int], limit: int, known: int = 0, recorder: Recorder = ignore) -> int:
        return 0

    def reset(self) -> None:
        self.rewind(0)

    def make_sampler(
        self, params: SamplingParams, prompt: Sequence[int], processors: Sequence[LogitsProcessor]
    ) -> Sampler:
        return TemperatureSampler(params.temperature, params.seed)

    def close(self) -> None:
        pass


class _RecordedDrafter(Drafter):
    """The draft model's best tokens, at the cost of its passes."""

    name = "model"
    reports_passes = True

    def __init__(self, tables: _Tables, clock: _Clock) -> None:
        self._tables, self._clock = tables, clock
        self._cells: list[int] = []

    def propose(self, text: Sequence[int], limit: int, hints: Hints = NO_HINTS) -> Draft:
        draft = Draft([])
        first = len(text) - 1  # the row that follows the text
        kind = "draft" if hints.unchanged else "prefill"
        if kind == "prefill":
            self._cells = []
        known = min(common_prefix(self._cells, text), len(text) - 1)
        new = [*text[known:]]
        del self._cells[known:]
        while len(draft.tokens) < min(limit, len(self._tables.draft) - first):
            self._clock.passed(kind, len(new), hints.recorder)
            self._cells += new
            row = first + len(draft.tokens)
            draft.tokens.append(self._tables.draft[row])
            draft.confidences.append(self._tables.confidence[row])
            if not hints.wants_more(draft.confidences):
                break
            kind, new = "draft", draft.tokens[-1:]
        return draft
