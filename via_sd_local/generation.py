"""The generation loop and its four modes.

The loop's invariant: between rounds the verifier's cache holds `text` without its last token, so that the next pass
begins with that one. The sampler has accepted every token of the text that was generated.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, TypeAlias

from .arrays import Floats
from .audit import Audit
from .binding import interrupts_after
from .budget import Budget
from .drafters import Draft, Drafter, always
from .gate import Region, Verdict, judge
from .pace import Pace
from .policy import Mode, Policy
from .sampling import Best, Distribution, Sampler, softmax_of, verify
from .stats import Stats
from .tiers import Verifier, common_prefix
from .watch import Flow, Watcher

FinishReason: TypeAlias = Literal["stop", "length"]


class Tier(Enum):
    """Who decided a token: the draft that the slim verifier let through, the slim verifier, or the full one."""

    DRAFT = "draft"
    SLIM = "slim"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens that were decided together, who decided each, and why the text ends, if it does."""

    tokens: tuple[int, ...]
    tiers: tuple[Tier, ...]
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """What one round of a mode's loop decided; `logits[i]` is the row that decided tokens[i], until the next pass."""

    tokens: list[int]
    tiers: list[Tier]
    logits: Floats


class Generation:
    """The state of one call of `Engine.generate`."""

    def __init__(
        self,
        verifier: Verifier,
        drafters: Sequence[Drafter],
        policy: Policy,
        paces: Sequence[Pace],
        budget: Budget,
        sampler: Sampler,
        compares: bool,
        stats: Stats,
        prompt: list[int],
        end: int,
        watcher: Watcher | None = None,
    ) -> None:
        """The drafters are asked in turn until one has a proposal.

        `paces` choose the lengths of drafts, one for each drafter; there are none where the policy fixes the lengths.
        `budget` is the engine's.

        `compares`: drafts are no samples, and the target's own draws are compared with them; then the text does not
        depend on the lengths of drafts.

        `end` is the text's longest permitted length, prompt included.
        """
        self.verifier = verifier
        self.drafters: list[Drafter | None] = [*drafters]  # None: it failed
        self.names = [drafter.name for drafter in drafters]
        self.policy = policy
        self.paces = paces
        self.budget = budget
        self.pace = paces[0] if paces else None  # of the drafter that made the last draft
        self.shown = [0] * len(drafters)  # of the text that each drafter saw last, what was decided then
        self.compares = compares
        self.sampler = sampler
        self.stats = stats
        self.text = prompt
        self.end = end
        self.watcher = watcher
        self.end_tokens = verifier.model.eog
        self.rule = policy.rule
        self.trusts_slim = True  # tiered: until it has cost too many deviations
        self.audit = Audit()
        # audits need the logits of many positions: as many as `sd` has anyway, or 0.25 % of the model's memory
        self.usual_rows = (policy.draft_tokens or 3) + 1
        self.audit_rows = verifier.model.n_bytes // 400 // (2 * 4 * verifier.model.n_vocab)

    def run(self, is_current: Callable[[], bool]) -> Generator[Step, None, None]:
        """Yield steps as long as the generation is the current one; `stats`'s clock runs only while this code does."""
        try:
            if not is_current():
                return
            steps = self._steps()
            while True:
                started = time.perf_counter()
                with interrupts_after():  # one for all passes of the step
                    step = next(steps, None)
                self.stats.seconds += time.perf_counter() - started
                if step is None:
                    return
                yield step
                if not is_current():
                    return
        finally:
            self.sampler.close()
            self.audit.close()

    def _steps(self) -> Iterator[Step]:
        self.verifier.recorder = self._record
        if len(self.text) >= self.end:
            if self.watcher is not None and self.watcher.prompt_from is not None:
                self._shown_prompt(self.watcher, self.watcher.prompt_from)
            yield Step((), (), "length")
            return
        started = time.perf_counter()
        step = self._commit(self._prefill())
        self.stats.first_token_seconds = time.perf_counter() - started
        rounds: dict[Mode, Callable[[], Block]] = {
            Mode.PLAIN: self._plain,
            Mode.SD: self._sd,
            Mode.EXACT: self._exact,
            Mode.TIERED: self._tiered,
        }
        for index, drafter in enumerate(self.drafters):
            if drafter is not None:
                with self._drafter_may_fail(index):
                    drafter.begin(self._record_draft)
        while True:
            yield step
            if step.finish_reason is not None:
                return
            step = self._commit(rounds[self.policy.mode]())
            self.stats.blocks += bool(step.tokens)  # not the block of an end token alone

    def _commit(self, block: Block) -> Step:
        """Append a block to the text, cut at the first end token, where the watcher ends it, and at the full length."""
        reason: FinishReason | None = None
        tokens = block.tokens
        for i, token in enumerate(tokens):
            flow = Flow.END_BEFORE if token in self.end_tokens else Flow.GO_ON
            if self.watcher is not None and flow is Flow.GO_ON:
                flow = self.watcher.see_token(token, block.logits[i])
            if flow is not Flow.GO_ON:
                tokens, reason = tokens[: i + (flow is Flow.END_AFTER)], "stop"
                break
            if len(self.text) + i + 1 == self.end:
                tokens, reason = tokens[: i + 1], "length"
                break
        self.text += tokens
        self.stats.emitted(len(tokens), confirmed=not block.tiers or block.tiers[-1] is Tier.FULL)
        return Step(tuple(tokens), tuple(block.tiers[: len(tokens)]), reason)

    def _prefill(self) -> Block:
        """The first token: the full model over what of the prompt is not in its cache yet."""
        if self.watcher is not None and self.watcher.prompt_from is not None:
            return self._decided_by_full(Draft([]), self._shown_prompt(self.watcher, self.watcher.prompt_from))
        n = self.stats.reused_tokens = self.verifier.reuse(self.text, len(self.text) - 1)
        return self._decided_by_full(Draft([]), self.verifier.full(self.text[n:], 1, "prefill"))

    def _shown_prompt(self, watcher: Watcher, start: int) -> Floats:
        """Decode the prompt from `start` on, batch by batch, with all logits; returns the last row, `[1, n_vocab]`."""
        n = self.stats.reused_tokens = self.verifier.reuse(self.text, min(start, len(self.text) - 1))
        size = self.verifier.context.n_batch
        for start in range(n, len(self.text), size):
            batch = self.text[start : start + size]
            logits = self.verifier.full(batch, len(batch), "prefill")
            watcher.see_prompt(start, logits)
        return logits[-1:]

    def _propose(self, text: list[int]) -> Draft:
        """A draft that leaves room for the verifier's own token, by the first drafter that has one."""
        room = self.end - len(text) - 1
        draft = Draft([])
        for index, drafter in enumerate(self.drafters):
            if drafter is not None and not draft.tokens and (limit := self._limit(index, room)) > 0:
                if self.paces:
                    self.pace = self.paces[index]
                with self._drafter_may_fail(index):
                    draft = self._ask(index, drafter, text, limit)
        return draft

    def _limit(self, index: int, room: int) -> int:
        """How many tokens a drafter may propose."""
        if not self.paces:
            return min(self.policy.draft_tokens or room, room)
        pace = self.paces[index]
        probes = pace.probes
        others = [
            self.paces[i].promised(room) for i in range(index + 1, len(self.paces)) if self.drafters[i] is not None
        ]
        limit = pace.length(room, max(others)) if others else pace.length(room)
        self.stats.pace["off"] += limit == 0 < room
        self.stats.pace["probes"] += pace.probes - probes
        return limit

    def _ask(self, index: int, drafter: Drafter, text: list[int], limit: int) -> Draft:
        """One drafter's draft, checked."""
        wants_more = self.paces[index].wants_more if self.paces else always
        shown = Best(self.sampler) if self.compares else self.sampler
        unchanged, self.shown[index] = self.shown[index], len(self.text)
        draft = replace(drafter.propose(text, limit, shown, wants_more, unchanged).cut(limit), drafter=index)
        n_vocab = self.verifier.model.n_vocab
        if unknown := [token for token in draft.tokens if not 0 <= token < n_vocab]:
            raise ValueError(f"it proposed token {unknown[0]}; the model has tokens 0 to {n_vocab - 1}")
        self.stats.drafted += len(draft.tokens)
        return draft

    def _record(self, kind: str, tokens: int, seconds: float) -> None:
        """Count a pass, and learn its cost."""
        self.stats.record(kind, tokens, seconds)
        if self.pace and kind != "prefill":
            self.pace.costs.observe(kind, tokens, seconds)

    def _record_draft(self, kind: str, tokens: int, seconds: float) -> None:
        self.stats.draft_prefill_tokens += tokens * (kind == "prefill")
        self._record(kind, tokens, seconds)

    def _observe(self, route: str | None, draft: Draft, accepted: int) -> None:
        """Count what became of a draft, and tell those who learn from it.

        `route` is the tier that saw it first, None where that says nothing of the drafter.
        """
        if not draft.tokens:
            return
        if self.paces and route is not None:
            self.paces[draft.drafter].observe(route, draft.confidences, len(draft.tokens), accepted)
        self.stats.judged(self.names[draft.drafter], len(draft.tokens), accepted)
        drafter = self.drafters[draft.drafter]
        if drafter is not None:
            with self._drafter_may_fail(draft.drafter):
                drafter.observe(accepted)

    @contextmanager
    def _drafter_may_fail(self, index: int) -> Iterator[None]:
        """A drafter that raises is dropped for the rest of this answer, with a warning."""
        try:
            yield
        except Exception as error:
            self.drafters[index] = None
            self.stats.drafter_failed = True
            left = "drafts" if all(drafter is None for drafter in self.drafters) else "it"
            warnings.warn(f"the drafter failed ({error}); going on without {left}", RuntimeWarning, stacklevel=2)

    def _decided_by_full(self, draft: Draft, logits: Floats) -> Block:
        """The full verifier's own tokens, as far as the draft agrees and one more."""
        tokens = verify(self.sampler, draft.tokens, draft.proposals, logits, self.end_tokens)
        return Block(tokens, [Tier.FULL] * len(tokens), logits)

    def _settle(self, block: Block) -> Block:
        """Bring the cache back to the invariant, for the text with this block."""
        self.verifier.rewind(len(self.text) + len(block.tokens) - 1)
        return block

    #
    # the modes
    #

    def _plain(self) -> Block:
        return self._decided_by_full(Draft([]), self.verifier.full(self.text[-1:], 1))

    def _sd(self) -> Block:
        draft = self._propose(self.text)
        n = len(draft.tokens)
        block = self._decided_by_full(draft, self.verifier.full([self.text[-1], *draft.tokens], n + 1))
        self._observe("full", draft, common_prefix(block.tokens, draft.tokens))
        return self._settle(block)

    def _exact(self) -> Block:
        """Draft and let the slim verifier mend, as long as it is sure; then the full one confirms all of it at once."""
        base, verifier = len(self.text), self.verifier
        candidates: list[int] = []
        shown: list[tuple[Draft, int, int]] = []  # drafts, where each begins, and how much of it became candidates
        with closing(self.sampler.fork()) as ahead:
            sure = True
            while sure and len(candidates) < self.policy.audit_every:
                so_far = self.text + candidates
                proposed = self._propose(so_far)
                draft = proposed.tokens
                if not draft:
                    break
                verdict = judge(self.rule, draft, verifier.slim([so_far[-1], *draft]), ahead, self.end_tokens)
                self._count(verdict)
                # what the slim verifier is unsure of goes to the full one as it was drafted
                kept = len(draft) if verdict.region is Region.C else verdict.kept
                shown.append((proposed, len(candidates), kept))
                candidates += draft[:kept]
                verifier.rewind(base + len(candidates))
                sure = verdict.sure and verdict.token not in self.end_tokens
                if sure:
                    ahead.accept(verdict.token)
                    candidates.append(verdict.token)
        # a last candidate that no pass has seen is left out: the full pass gives that position its token anyway
        del candidates[max(0, verifier.n_kv - base) :]
        logits = verifier.full([] if verifier.n_kv == base + len(candidates) else self.text[-1:], len(candidates) + 1)
        block = self._decided_by_full(Draft(candidates), logits)
        agreed = common_prefix(block.tokens, candidates)
        for proposed, start, kept in shown:
            self._observe("slim" if start <= agreed else None, proposed, max(0, min(kept, agreed - start)))
        return self._settle(block)

    def _tiered(self) -> Block:
        """The slim verifier keeps (A) or rewrites (B) what it is sure of; from the first C on, the full one decides."""
        verifier, sampler = self.verifier, self.sampler
        draft = self._propose(self.text)
        if not draft.tokens:
            return self._escalated(draft, 0, self.text[-1:])
        pending = verifier.n_kv - verifier.n_full
        due = len(self.audit) > 0 and len(self.audit) + len(draft.tokens) >= self.policy.audit_every
        slim_first = not self.pace or (not due and self.pace.slim_first(draft.confidences, len(draft.tokens), pending))
        if self.budget.is_spent or not (self.trusts_slim and slim_first):
            self.stats.pace["full_first"] += self.pace is not None
            return self._escalated(draft, 0, [self.text[-1], *draft.tokens], seen=False)
        self.stats.pace["slim_first"] += self.pace is not None
        slim = verifier.slim([self.text[-1], *draft.tokens])
        self.audit.begin(sampler)
        verdict = judge(self.rule, draft.tokens, slim, sampler, self.end_tokens)
        kept = draft.tokens[: verdict.kept]
        for i, token in enumerate(kept):
            self.audit.expect(token, "A", draft.confidences[i] if draft.confidences else 1.0)
        ended = bool(kept) and kept[-1] in self.end_tokens
        forced = len(self.audit) >= self.policy.audit_every and not ended
        if self.pace:
            self.pace.observe_slim(draft.confidences, verdict.region is Region.C or forced, verdict.sure)
        if verdict.region is Region.C or forced:
            self.stats.audits += verdict.region is not Region.C
            self._count(replace(verdict, region=Region.C if verdict.region is Region.C else Region.A, sure=False))
            return self._escalated(draft, len(kept), [])
        self._count(verdict)
        block = Block(kept, [Tier.DRAFT] * len(kept), slim)
        if verdict.sure:
            row = slim[len(kept)]
            token = sampler.choose(row)
            self.audit.expect(token, "B", softmax_of(sampler.processed(row), token))
            if token not in self.end_tokens:
                sampler.accept(token)
            block.tokens.append(token)
            block.tiers.append(Tier.SLIM)
        self._observe("slim", draft, verdict.kept)
        return self._settle(block)

    def _escalated(self, draft: Draft, kept: int, tokens: list[int], *, seen: bool = True) -> Block:
        """The full verifier audits what the slim one decided, and decides the draft from `kept` on.

        `tokens` are those that no pass has seen yet. Where the budget is spent, the full verifier decides the block's
        own kept tokens, too, from the first deviation on. `seen`: the slim tier turned the next draft token down; given
        that, it is no sample of the drafter's any more.
        """
        known = len(self.audit)
        if kept < known and self._audited(draft, kept) == kept < len(draft.tokens):
            # not a row to spare for what was decided before this block: do without the draft's last token
            draft = draft.cut(len(draft.tokens) - 1)
            if tokens:
                tokens = tokens[:-1]
            else:
                self.verifier.rewind(self.verifier.n_kv - 1)
        audited = self._audited(draft, kept)
        logits = self.verifier.full(tokens, audited + len(draft.tokens) - kept + 1)
        row = audited  # where the logits begin that judge draft[kept]
        deviations = self.stats.deviating
        first = self.audit.check(logits[:audited], known - kept, self.stats, self.end_tokens)
        self.budget.earn(audited)
        self.budget.spend(self.stats.deviating - deviations)
        if self.stats.deviating > deviations and self.budget.is_spent:
            self._tighten()
            if first is not None:
                row, kept = row - kept + first.position, first.position
                self.sampler, first = first.before, replace(first, before=self.sampler)
        if first is not None:
            first.before.close()
        proposals: list[Distribution | None] = [*draft.proposals[kept:]]
        if seen and proposals:
            proposals[0] = None
        lenient: list[int] = []  # draft tokens that the full verifier lets through though it would choose others

        def lets_through(position: int, gap: float) -> bool:
            if self.budget.lets_through(gap):
                lenient.append(position)
            return lenient[-1:] == [position]

        decided = verify(self.sampler, draft.tokens[kept:], proposals, logits[row:], self.end_tokens, lets_through)
        self.budget.earn(len(decided))
        self.stats.audited["C"] += len(decided)
        self.stats.deviations["C"] += len(lenient)
        self._observe("slim" if seen else "full", draft, kept + common_prefix(decided, draft.tokens[kept:]))
        tiers = [Tier.DRAFT] * kept + [Tier.DRAFT if i in lenient else Tier.FULL for i in range(len(decided))]
        return self._settle(Block(draft.tokens[:kept] + decided, tiers, logits[row - kept :]))

    def _audited(self, draft: Draft, kept: int) -> int:
        """How many of the newest waiting tokens a full pass audits: the block's own, and what memory permits."""
        spare = self.usual_rows - (len(draft.tokens) - kept + 1)
        return min(len(self.audit), max(kept, spare, self.audit_rows))

    def _tighten(self) -> None:
        """Ask for more confidence; after the third time, leave nothing to the slim verifier."""
        self.stats.tightened += 1
        self.rule = self.rule.tighter()
        if self.stats.tightened > 3:
            self.trusts_slim = False

    def _count(self, verdict: Verdict) -> None:
        self.stats.regions["A"] += verdict.kept
        if verdict.region is not Region.A:
            self.stats.regions[verdict.region.value] += 1
        elif verdict.sure:
            self.stats.regions["bonus"] += 1
