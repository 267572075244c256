"""The generation loop and its four modes.

The loop's invariant: between rounds the verifier's cache holds `text` without its last token, so that the next pass
begins with that one. The sampler has accepted every token of the text that was generated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from ..arrays import Floats
from ..interrupts import interrupts_after
from ..sampling.sampler import Distribution, Sampler, Shown, softmax_of, verify
from ..tiers.drafter import Draft, Drafter
from ..tiers.verifier import Verifier, common_prefix
from .audit import Audit
from .budget import DeviationBudget
from .drafting import Drafting
from .gate import Region, SlimVerdict, judge
from .pace import Pace
from .policy import Mode, Policy
from .stats import Stats
from .steps import Block as Block
from .steps import FinishReason as FinishReason
from .steps import Step as Step
from .steps import Tier as Tier
from .watch import Flow, Watcher


class Generation:
    """The state of one call of `Engine.generate`."""

    def __init__(
        self,
        verifier: Verifier,
        drafters: Sequence[Drafter],
        policy: Policy,
        paces: Sequence[Pace],
        budget: DeviationBudget,
        sampler: Sampler,
        compares: bool,
        stats: Stats,
        prompt: list[int],
        end: int,
        watcher: Watcher | None = None,
    ) -> None:
        """`drafters` and `paces` are those of `Drafting`; `budget` is the engine's.

        `compares`: drafts are no samples, and the target's own draws are compared with them; then the text does not
        depend on what was drafted.

        `end` is the text's longest permitted length, prompt included.
        """
        self.verifier = verifier
        self.drafting = Drafting(drafters, paces, policy, stats, verifier.model.n_vocab, self._record_draft)
        self.policy = policy
        self.budget = budget
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
        self.spent = 0.0  # seconds of passes, by the medians of their kind and size; a stall does not show
        # audits need the logits of many positions: as many as `sd` has anyway, or 0.25 % of the model's memory
        self.usual_rows = (policy.draft_tokens or 3) + 1
        self.audit_rows = verifier.model.n_bytes // 400 // (2 * 4 * verifier.model.n_vocab)

    @property
    def pace(self) -> Pace | None:
        """The pace of the drafter that made the last draft; None where lengths are fixed."""
        return self.drafting.pace

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
        """A draft that leaves room for the verifier's own token."""
        return self.drafting.propose(text, len(self.text), self.end - len(text) - 1, self._shown())

    def _shown(self) -> Sampler:
        """The sampler for a drafter.

        Where drafts are compared with the target's own draws, they are made alike. Not in tiered: there the slim tier
        may draw in place of a draft that it turned down, and must not do so with the same random numbers.
        """
        if self.policy.mode is Mode.EXACT or self.compares:
            return Shown(self.sampler, likeness=self.policy.mode is not Mode.TIERED)
        return self.sampler

    def _record(self, kind: str, tokens: int, seconds: float) -> None:
        """Count a pass, and learn its cost."""
        self.stats.record(kind, tokens, seconds)
        if self.pace and kind != "prefill":
            costs = self.pace.costs
            costs.observe(kind, tokens, seconds)
            self.spent += costs.of(kind, tokens) if costs.knows(kind) else seconds

    def _record_draft(self, kind: str, tokens: int, seconds: float) -> None:
        self.stats.draft_prefill_tokens += tokens * (kind == "prefill")
        self._record(kind, tokens, seconds)

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
        return self._checked(self._propose(self.text))

    def _checked(self, draft: Draft) -> Block:
        """The draft goes to the full verifier at once."""
        n = len(draft.tokens)
        block = self._decided_by_full(draft, self.verifier.full([self.text[-1], *draft.tokens], n + 1))
        self.drafting.observe("full", draft, common_prefix(block.tokens, draft.tokens))
        return self._settle(block)

    def _exact(self) -> Block:
        """The full verifier confirms a draft, which the slim one has mended first where that pays."""
        spent = self.spent
        draft = self._propose(self.text)
        pace = self.pace
        if not draft.tokens:
            return self._checked(draft)
        slim_first = pace is None or pace.mends_first()
        block = self._mended(draft, pace is None or pace.mends_on) if slim_first else self._checked(draft)
        if pace is not None:
            self.stats.pace["slim_first" if slim_first else "full_first"] += 1
            pace.observe_yield("slim" if slim_first else "full", len(block.tokens), self.spent - spent)
        return block

    def _mended(self, proposed: Draft, goes_on: bool) -> Block:
        """The slim verifier mends this draft, then the full one confirms it.

        `goes_on`: the slim one mends draft after draft while it is sure, and all of it is confirmed at once.
        """
        base, verifier = len(self.text), self.verifier
        candidates: list[int] = []
        shown: list[tuple[Draft, int, int]] = []  # drafts, where each begins, and how much of it became candidates
        with closing(self.sampler.fork()) as ahead:
            sure = True
            while sure and len(candidates) < self.policy.audit_every:
                so_far = self.text + candidates
                if shown:
                    proposed = self._propose(so_far)
                draft = proposed.tokens
                if not draft:
                    break
                slim = verifier.slim([so_far[-1], *draft])
                verdict = judge(self.rule, draft, slim, ahead, self.end_tokens)
                self._count(verdict)
                # what the slim verifier is unsure of goes to the full one as it was drafted
                kept = len(draft) if verdict.region is Region.C else verdict.kept
                shown.append((proposed, len(candidates), kept))
                candidates += draft[:kept]
                verifier.rewind(base + len(candidates))
                if sure := verdict.sure:
                    # as the full verifier will choose, with its random numbers
                    token = ahead.choose(slim[kept]) if ahead.is_distribution else verdict.token
                    sure = token not in self.end_tokens
                if sure:
                    ahead.accept(token)
                    candidates.append(token)
                if self.pace:
                    self.pace.observe_slim(proposed.confidences, not sure, sure)
                if not goes_on:
                    break
        # a last candidate that no pass has seen is left out: the full pass gives that position its token anyway
        del candidates[max(0, verifier.n_kv - base) :]
        logits = verifier.full([] if verifier.n_kv == base + len(candidates) else self.text[-1:], len(candidates) + 1)
        block = self._decided_by_full(Draft(candidates), logits)
        agreed = common_prefix(block.tokens, candidates)
        for proposed, start, kept in shown:
            self.drafting.observe("slim" if start <= agreed else None, proposed, max(0, min(kept, agreed - start)))
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
        self.drafting.observe("slim", draft, verdict.kept)
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
            self.stats.drafted -= 1
            if tokens:
                tokens = tokens[:-1]
            else:
                self.verifier.rewind(self.verifier.n_kv - 1)
        audited = self._audited(draft, kept)
        logits = self.verifier.full(tokens, audited + len(draft.tokens) - kept + 1)
        row = audited  # where the logits begin that judge draft[kept]
        found, first = self.audit.check(logits[:audited], known - kept, self.end_tokens)
        deviations = sum(one.deviates for one in found)
        own = sum(one.deviates for one in found[audited - kept :])
        if found:
            self.budget.earn(known)
            # what is not audited is taken to deviate as often as what is
            self.budget.spend(deviations * known / audited)
        if deviations and self.budget.is_spent:
            self._tighten()
            if first is not None:  # the block ends before it: those after it were never decided
                self.budget.spend(1 - own)
                self.stats.regions["A"] -= kept - first.position
                del found[audited - kept + first.position :]
                row, kept = row - kept + first.position, first.position
                self.sampler, first = first.before, replace(first, before=self.sampler)
        for one in found:
            self.stats.audit(one.region, one.deviates, one.overshoot)
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
        self.drafting.observe("slim" if seen else "full", draft, kept + common_prefix(decided, draft.tokens[kept:]))
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

    def _count(self, verdict: SlimVerdict) -> None:
        self.stats.regions["A"] += verdict.kept
        if verdict.region is not Region.A:
            self.stats.regions[verdict.region.value] += 1
        elif verdict.sure:
            self.stats.regions["bonus"] += 1
