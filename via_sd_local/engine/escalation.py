"""Escalation in mode `tiered`: the full verifier audits the slim one's decisions, then decides the rest of a block."""

from __future__ import annotations

from dataclasses import dataclass

from ..arrays import Floats
from ..tiers.cache import common_prefix
from ..tiers.drafter import Draft
from .audit import Audit, AuditReport
from .decoder import DecodingState
from .lenience import verify_leniently
from .steps import Block, Tier


@dataclass(frozen=True, slots=True)
class Case:
    """A block that goes to the full verifier.

    The slim verifier has kept the first `kept` tokens of `draft`. `unseen` are the tokens that no pass has decoded yet.
    `slim_saw` says that the slim verifier has seen the draft, and `unsure` that the token after the kept ones is in
    region C. At a temperature the slim verifier has not looked at that token, so it still is a sample of the drafter.
    """

    draft: Draft
    kept: int
    unseen: list[int]
    slim_saw: bool
    unsure: bool = False


class Escalation:
    """The full pass over one block, in four steps: make room for audits, audit, charge the budget, decide the rest."""

    def __init__(self, state: DecodingState, audit: Audit, case: Case) -> None:
        self._state = state
        self._audit = audit
        self._case = case
        self._draft, self._kept, self._unseen = case.draft, case.kept, case.unseen

    def run(self) -> Block:
        """Run the full pass and return the block, which still has to be settled."""
        waiting = len(self._audit)
        self._make_room(waiting)
        audited = self._audited_rows(waiting)
        self._state.passes.begin_at(len(self._state.text) - 1 + self._kept - audited)
        logits = self._state.passes.full(self._unseen, audited + len(self._draft.tokens) - self._kept + 1)
        report = self._audit.compare(logits[:audited], waiting - self._kept, self._state.end_tokens)
        tokens_taken_back = self._charge(report, waiting)
        self._count(report, tokens_taken_back)
        return self._decide_rest(logits, audited - tokens_taken_back)

    def _make_room(self, waiting: int) -> None:
        """Do without the draft's last token where no row would be left to audit what was decided before this block."""
        n = len(self._draft.tokens)
        if self._kept < waiting and self._audited_rows(waiting) == self._kept < n:
            self._draft = self._draft.cut(n - 1)
            if self._unseen:
                self._unseen = self._unseen[:-1]
            else:
                passes = self._state.passes
                passes.rewind(passes.verifier.n_kv - 1)

    def _audited_rows(self, waiting: int) -> int:
        """Return how many of the newest waiting decisions the pass audits: the block's own, and as memory permits.

        An audit needs a row of logits for each token. A pass may have as many rows as one of mode `sd` has anyway, or
        rows worth 0.25 % of the model's size. Settled positions would be computed for the audit alone, so only the
        former number of them is.
        """
        passes = self._state.passes
        verifier = passes.verifier
        usual = max(self._state.policy.draft_tokens or 3, len(self._case.draft.tokens)) + 1
        affordable = verifier.n_bytes // 400 // (2 * 4 * verifier.n_vocab)
        if passes.write_through and not passes.is_renewal_due:
            affordable = 0
        spare = usual - (len(self._draft.tokens) - self._kept + 1)
        return min(waiting, max(self._kept, spare, affordable))

    def _charge(self, report: AuditReport, waiting: int) -> int:
        """Charge the waiting decisions to the budget: by the audit, and by the rate so far where it passed them over.

        The block's own tokens are not emitted yet. Where the budget does not bear their deviations, they are taken back
        from the first one on. An overdrawn budget tightens the thresholds. Returns how many tokens are taken back.
        """
        budget, trust, kept = self._state.budget, self._state.trust, self._kept
        trust.observe(token.deviation for token in report.tokens)
        emitted, passed_over = waiting - kept, waiting - len(report.tokens)
        own = sum(token.deviation for token in report.tokens[len(report.tokens) - kept :])
        assumed = passed_over * trust.rate
        budget.earn(emitted)
        budget.spend(report.deviations - own + assumed)
        self._state.stats.pass_over(passed_over, assumed)
        taken_back = 0
        if report.first is not None and not budget.bears(own, kept):
            self._state.sampler.close()
            self._state.sampler = report.first.before
            self._kept = report.first.position
            taken_back = kept - self._kept
        else:
            if report.first is not None:
                report.first.before.close()
            budget.spend(own)
        budget.earn(self._kept)
        if report.deviations and (taken_back or budget.is_spent):
            self._state.stats.tightened += 1
            trust.tighten()
        return taken_back

    def _count(self, report: AuditReport, taken_back: int) -> None:
        """Count the regions, and the audited tokens that stay in the text."""
        stats = self._state.stats
        stats.regions["A"] += self._kept
        stats.regions["C"] += self._case.unsure
        for token in report.tokens[: len(report.tokens) - taken_back]:
            stats.audit(token.region, token.deviation, token.overshoot)

    def _decide_rest(self, logits: Floats, row: int) -> Block:
        """Let the full verifier decide the draft after the kept tokens, leniently as far as the budget permits.

        The logits that judge that part of the draft begin at `row`.
        """
        state, draft, kept = self._state, self._draft, self._kept
        if kept and draft.tokens[kept - 1] in state.end_tokens:
            state.drafting.observe("slim", draft, kept)
            return Block(draft.tokens[:kept], [Tier.DRAFT] * (kept - 1) + [Tier.FULL], logits[row - kept :], kept)
        rest, proposals = draft.tokens[kept:], draft.proposals[kept:]
        decided = verify_leniently(state, rest, proposals, logits[row:])
        accepted = kept + common_prefix(decided.tokens, rest)
        state.drafting.observe("slim" if self._case.slim_saw else "full", draft, accepted)
        tiers = [Tier.DRAFT] * kept + decided.tiers
        return Block(draft.tokens[:kept] + decided.tokens, tiers, logits[row - kept :], accepted)
