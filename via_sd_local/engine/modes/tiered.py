"""Mode `tiered`: the slim verifier decides what it is sure of, and the full one the rest. Lossy.

This is the method of VIA-SD (arXiv 2606.12243) with a budget of deviations: the slim verifier keeps (region A) or
rewrites (region B) draft tokens; from the first token of region C on, the full verifier decides. At a temperature each
position is a sample of the distribution of the tier that decides it.
"""

from __future__ import annotations

from ...arrays import Floats
from ...sampling.distribution import token_probability
from ...tiers.drafter import Draft
from ..audit import Audit, SlimDecision
from ..decoder import BlockDecoder, DecodingState
from ..escalation import Case, Escalation
from ..gate import Region, judge
from ..policy import Router
from ..slim_sampling import SlimJudgement, sample_by_slim
from ..steps import Block, Tier


class TieredDecoder(BlockDecoder):
    """Decodes blocks by whichever tier sees the draft first."""

    def __init__(self, state: DecodingState) -> None:
        super().__init__(state)
        self._audit = Audit()

    def close(self) -> None:
        """Charge the decisions that no audit will see any more, and free the state that it would need."""
        state, waiting = self.state, len(self._audit)
        state.budget.earn(waiting)
        state.budget.spend(waiting * state.trust.rate)
        self._audit.close()
        super().close()

    def decode_block(self) -> Block:
        state = self.state
        draft = self.draft(state.text)
        if not draft.tokens:
            return self._escalate(Case(draft, 0, state.text[-1:], slim_saw=True))
        if not self._chooses_slim(draft):
            return self._escalate(Case(draft, 0, [state.text[-1], *draft.tokens], slim_saw=False))
        slim = state.passes.slim([state.text[-1], *draft.tokens])
        self._audit.begin(state.sampler)
        judgement = self._judge(draft, slim)
        verdict = judgement.verdict
        kept = draft.tokens[: verdict.kept]
        for i, token in enumerate(kept):
            probability = draft.confidences[i] if draft.confidences else 1.0
            self._audit.expect(SlimDecision(token, "A", probability, judgement.distributions[i]))
        due = self._is_audit_due(kept)
        if state.drafting.pace:  # which is to know the slim tier, not the credit of the moment
            state.drafting.pace.observe_slim(draft.confidences, judgement.unsure or due, verdict.sure)
        if verdict.region is Region.C or due or not self._is_covered(verdict.sure):
            state.stats.audits += not judgement.unsure
            return self._escalate(Case(draft, len(kept), [], slim_saw=True, unsure=judgement.unsure))
        return self._decided_by_slim(draft, judgement, slim)

    def _judge(self, draft: Draft, slim: Floats) -> SlimJudgement:
        """Let the slim tier decide what it is sure of, by its logits `[len(draft.tokens) + 1, n_vocab]`.

        At temperature 0 the verdict depends on the drafted tokens. Otherwise it must not; see `slim_sampling`.
        """
        state, rule = self.state, self.state.trust.rule
        if state.sampler.greedy:
            verdict = judge(rule, draft.tokens, slim, state.sampler, state.end_tokens)
            return SlimJudgement(verdict, verdict.region is Region.C, [None] * (len(draft.tokens) + 1))
        waiting = len(self._audit)
        most = state.policy.audit_every - waiting  # what is decided here cannot be taken back, so all of it is covered
        while most > 0 and not self._is_covered(most):
            most -= 1
        return self.sample(draft, slim, most)

    def sample(self, draft: Draft, slim: Floats, most: int) -> SlimJudgement:
        """Sample at a temperature by the slim tier's logits, keeping at most `most` tokens of the draft."""
        return sample_by_slim(self.state.trust.rule, draft, slim, self.state.sampler, self.state.end_tokens, most)

    def _chooses_slim(self, draft: Draft) -> bool:
        """Choose the tier that sees the draft first, and count the choice.

        Logits processors may be called once a position only, so the slim tier decides nothing where there are any. At a
        temperature the choice goes by the planned length and the overall rates: a choice that depended on the
        drafted tokens would change the distribution of those that each tier decides.
        """
        state, pace, waiting = self.state, self.state.drafting.pace, len(self._audit)
        slim_first = True
        length, confidences = len(draft.tokens), draft.confidences
        if not state.sampler.greedy:
            planned = pace.planned if pace is not None else state.policy.draft_tokens
            length, confidences = max(planned or 1, 1), []
        router = state.policy.router
        if router is Router.FULL_FIRST:
            slim_first = False
        elif router is Router.COST and pace is not None:
            verifier = state.passes.verifier
            pending = verifier.n_kv - verifier.n_full
            audit_due = waiting > 0 and waiting + length >= state.policy.audit_every
            slim_first = not audit_due and pace.choose_route(confidences, length, pending) == "slim"
        slim_first = slim_first and not state.sampler.calls_processors and self._may_choose_slim(length)
        if pace is not None:
            state.stats.pace["slim_first" if slim_first else "full_first"] += 1
        return slim_first

    def _may_choose_slim(self, length: int) -> bool:
        """Whether trust and budget let the slim tier see a draft of this length first.

        If what it would decide is not covered, it would be audited at once, so nothing could be saved. A full pass then
        sees the draft first, and audits what waits; or the slim tier is tried, so that more is known of it.
        """
        trust, budget = self.state.trust, self.state.budget
        if not trust.decides or budget.is_spent:
            return False
        if self._is_covered(length):
            return True
        return len(self._audit) == 0 and trust.decide_trial()

    def _is_covered(self, tokens: int) -> bool:
        """Whether the budget covers so many tokens beside those that wait for an audit."""
        return self.state.budget.covers(len(self._audit) + tokens, self.state.trust.rate)

    def _is_audit_due(self, kept: list[int]) -> bool:
        """Whether so many decisions wait that a full pass has to audit them, unless the text ends here."""
        ended = bool(kept) and kept[-1] in self.state.end_tokens
        return len(self._audit) >= self.state.policy.audit_every and not ended

    def _decided_by_slim(self, draft: Draft, judgement: SlimJudgement, slim: Floats) -> Block:
        """Return the block of the kept tokens and, where the slim verifier is sure, its own token after them.

        `slim` is `[len(draft.tokens) + 1, n_vocab]`.
        """
        state, verdict = self.state, judgement.verdict
        state.stats.count_verdict(verdict)
        state.stats.assumed_rate = state.trust.rate
        kept = draft.tokens[: verdict.kept]
        block = Block(kept, [Tier.DRAFT] * len(kept), slim, len(kept))
        if verdict.sure:
            token = verdict.token
            probability = token_probability(state.sampler.processed(slim[len(kept)]), token)
            self._audit.expect(SlimDecision(token, "B", probability, judgement.distributions[len(kept)]))
            if token not in state.end_tokens:
                state.sampler.accept(token)
            block.tokens.append(token)
            block.tiers.append(Tier.SLIM)
        state.drafting.observe("slim", draft, verdict.kept)
        self.settle(block)
        state.passes.settle()
        return block

    def _escalate(self, case: Case) -> Block:
        return self.settle(Escalation(self.state, self._audit, case).run())
