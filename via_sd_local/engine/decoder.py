"""What the decoders of all modes share: the state of a generation, and the steps around a full pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..arrays import Floats
from ..sampling.acceptance import verify
from ..sampling.distribution import Distribution
from ..sampling.sampler import DrafterSampler, Sampler
from ..tiers.cache import common_prefix
from ..tiers.drafter import Draft
from .budget import DeviationBudget
from .drafting import Drafting
from .passes import Passes
from .policy import Policy
from .stats import Stats
from .steps import Block, Tier
from .trust import SlimTrust
from .watch import Flow, Watch


@dataclass(slots=True)
class DecodingState:
    """The state of one generation, which the loop and the decoder of its mode share.

    Between blocks the verifier's cache holds `text` without its last token, so that the next pass begins with that
    token, and the sampler has accepted every generated token of `text`. Only the loop appends to `text`, which may grow
    to `end` tokens, prompt included. With `compares_draws`, drafts are not treated as samples but compared with the
    target's own draws, so that the text does not depend on the drafts.
    """

    text: list[int]
    end: int
    end_tokens: frozenset[int]
    policy: Policy
    passes: Passes
    drafting: Drafting
    sampler: Sampler
    budget: DeviationBudget
    trust: SlimTrust
    stats: Stats
    compares_draws: bool
    watch: Watch

    def decided_by_full(
        self,
        draft: Sequence[int],
        proposals: Sequence[Distribution | None],
        logits: Floats,
        lets_through: Callable[[int, float], bool] | None = None,
    ) -> list[int]:
        """Return the accepted prefix of a draft and the full verifier's own token after it (`acceptance.verify`).

        `logits` is `[len(draft) + 1, n_vocab]`. With logits processors, the draft must begin the block, and a token at
        which the watcher ends the text is the last, so that the processors are not called beyond it.
        """

        def ends(index: int, token: int) -> bool:
            return self.watch.flow(index, token, logits[index]) is not Flow.GO_ON

        ends_text = ends if self.sampler.calls_processors else None
        return verify(self.sampler, draft, proposals, logits, self.end_tokens, lets_through, ends_text)


class BlockDecoder(ABC):
    """Decodes block after block in one mode."""

    def __init__(self, state: DecodingState) -> None:
        self.state = state

    @abstractmethod
    def decode_block(self) -> Block:
        """Decode the next block; the cache then holds the text with this block, but for its last token."""

    def close(self) -> None:
        """Free the sampler."""
        self.state.sampler.close()

    def draft(self, text: list[int]) -> Draft:
        """Return a draft to follow `text`, which leaves room for one token of the verifier's own."""
        state = self.state
        return state.drafting.propose(text, len(state.text), state.end - len(text) - 1, self.drafter_sampler())

    def drafter_sampler(self) -> Sampler:
        """Return the sampler as drafters see it.

        Where drafts are compared with the target's own draws, they are drawn with the same random numbers.
        """
        return DrafterSampler(self.state.sampler, coupled=True) if self.state.compares_draws else self.state.sampler

    def verify(self, draft: Draft, logits: Floats) -> Block:
        """Return the full verifier's own tokens, as far as the draft agrees with them and one more.

        `logits` is `[len(draft.tokens) + 1, n_vocab]`.
        """
        tokens = self.state.decided_by_full(draft.tokens, draft.proposals, logits)
        return Block(tokens, [Tier.FULL] * len(tokens), logits, common_prefix(tokens, draft.tokens))

    def verify_at_once(self, draft: Draft) -> Block:
        """Let the full verifier check a draft that no other tier has seen, in one pass."""
        state = self.state
        n = len(draft.tokens)
        block = self.verify(draft, state.passes.full([state.text[-1], *draft.tokens], n + 1))
        state.drafting.observe("full", draft, common_prefix(block.tokens, draft.tokens))
        return self.settle(block)

    def settle(self, block: Block) -> Block:
        """Rewind the cache to the text with this block, but for its last token."""
        self.state.passes.rewind(len(self.state.text) + len(block.tokens) - 1)
        return block
