"""Mode `sd`: speculative decoding; the full verifier checks a draft in one pass. Lossless."""

from __future__ import annotations

from ..decoder import BlockDecoder
from ..steps import Block


class SdDecoder(BlockDecoder):
    """Decodes a draft, as far as it is accepted, and one token of the full verifier's own."""

    def decode_block(self) -> Block:
        return self.verify_at_once(self.draft(self.state.text))
