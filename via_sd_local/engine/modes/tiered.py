"""Mode `tiered`: the slim verifier decides what it is sure of, and the full one the rest. Lossy.

This is the method of VIA-SD (arXiv 2606.12243) with a budget of deviations: the slim verifier keeps (region A) or
rewrites (region B) draft tokens; from the first token of region C on, the full verifier decides.
"""

from __future__ import annotations

from ...arrays import Floats
from ...sampling.distribution import token_probability
from ...sampling.sampler import DrafterSampler, Sampler
from ...tiers.drafter import Draft
from ..audit import Audit
from ..decoder import BlockDecoder, DecodingState
from ..escalation import Case, Escalation
from ..gate import Region, SlimVerdict, judge
from ..steps import Block, Tier
from ..trust import SlimTrust


class TieredDecoder(BlockDecoder):
    """Decodes blocks by whichever tier sees the draft first."""

    def __init__(self, state: DecodingState) -> None:
        super().__init__(state)
        self._audit = Audit()
        self._trust = SlimTrust(state.policy.rule)

    def close(self) -> None:
        """Free the sampler and the state that an audit would need."""
        super().close()
        self._audit.close()

    def decode_block(self) -> Block:
        state = self.state
        draft = self.draft(state.text)
        if not draft.tokens:
            return self._escalate(Case(draft, 0, state.text[-1:], slim_saw=True))
        if not self._chooses_slim(draft):
            return self._escalate(Case(draft, 0, [state.text[-1], *draft.tokens], slim_saw=False))
        slim = state.passes.slim([state.text[-1], *draft.tokens])
        self._audit.begin(state.sampler)
        verdict = judge(self._trust.rule, draft.tokens, slim, state.sampler, state.end_tokens)
        kept = draft.tokens[: verdict.kept]
        for i, token in enumerate(kept):
            self._audit.expect(token, "A", draft.confidences[i] if draft.confidences else 1.0)
        unsure = verdict.region is Region.C
        escalates = unsure or self._must_audit(kept)
        if state.drafting.pace:
            state.drafting.pace.observe_slim(draft.confidences, escalates, verdict.sure)
        if escalates:
            state.stats.audits += not unsure
            return self._escalate(Case(draft, len(kept), [], slim_saw=True, unsure=unsure))
        return self._decided_by_slim(draft, verdict, slim)

    def drafter_sampler(self) -> Sampler:
        """Return the sampler as drafters see it.

        Drafts are never drawn with the target's random numbers here: the slim tier may draw in place of a draft token
        that it turned down, and must not do so with the numbers that drew it.
        """
        return DrafterSampler(self.state.sampler, coupled=False) if self.state.compares_draws else self.state.sampler

    def _chooses_slim(self, draft: Draft) -> bool:
        """Choose the tier that sees the draft first, and count the choice."""
        state, pace, waiting = self.state, self.state.drafting.pace, len(self._audit)
        audit_due = waiting > 0 and waiting + len(draft.tokens) >= state.policy.audit_every
        slim_first = True
        if pace is not None:
            verifier = state.passes.verifier
            pending = verifier.n_kv - verifier.n_full
            slim_first = not audit_due and pace.choose_route(draft.confidences, len(draft.tokens), pending) == "slim"
        slim_first = slim_first and self._trust.decides and not state.budget.is_spent
        if pace is not None:
            state.stats.pace["slim_first" if slim_first else "full_first"] += 1
        return slim_first

    def _must_audit(self, kept: list[int]) -> bool:
        """Whether so many decisions wait that a full pass has to audit them, unless the text ends here."""
        ended = bool(kept) and kept[-1] in self.state.end_tokens
        return len(self._audit) >= self.state.policy.audit_every and not ended

    def _decided_by_slim(self, draft: Draft, verdict: SlimVerdict, slim: Floats) -> Block:
        """Return the block of the kept tokens and, where the slim verifier is sure, its own token after them.

        `slim` is `[len(draft.tokens) + 1, n_vocab]`.
        """
        state = self.state
        state.stats.count_verdict(verdict)
        kept = draft.tokens[: verdict.kept]
        block = Block(kept, [Tier.DRAFT] * len(kept), slim)
        if verdict.sure:
            row = slim[len(kept)]
            token = state.sampler.choose(row)
            self._audit.expect(token, "B", token_probability(state.sampler.processed(row), token))
            if token not in state.end_tokens:
                state.sampler.accept(token)
            block.tokens.append(token)
            block.tiers.append(Tier.SLIM)
        state.drafting.observe("slim", draft, verdict.kept)
        return self.settle(block)

    def _escalate(self, case: Case) -> Block:
        return self.settle(Escalation(self.state, self._audit, self._trust, case).run())
