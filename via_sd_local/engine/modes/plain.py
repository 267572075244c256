"""Mode `plain`: the full verifier decides every token."""

from __future__ import annotations

from ...tiers.drafter import Draft
from ..decoder import BlockDecoder
from ..steps import Block


class PlainDecoder(BlockDecoder):
    """Decodes one token by one full pass."""

    def decode_block(self) -> Block:
        return self.verify(Draft([]), self.state.passes.full(self.state.text[-1:], 1))
