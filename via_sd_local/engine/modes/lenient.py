"""Mode `lenient`: the full verifier checks a draft in one pass, and keeps near-best draft tokens. Lossy.

This is lenient speculative decoding within a budget of deviations; there is no slim tier.
"""

from __future__ import annotations

from ...arrays import Floats
from ...tiers.cache import common_prefix
from ...tiers.drafter import Draft
from ..decoder import BlockDecoder
from ..lenience import verify_leniently
from ..steps import Block


class LenientDecoder(BlockDecoder):
    """Decodes a draft, as far as it is accepted or let through, and one token of the full verifier's own."""

    def decode_block(self) -> Block:
        return self.verify_at_once(self.draft(self.state.text))

    def verify(self, draft: Draft, logits: Floats) -> Block:
        decided = verify_leniently(self.state, draft.tokens, draft.proposals, logits)
        return Block(decided.tokens, decided.tiers, logits, common_prefix(decided.tokens, draft.tokens))
