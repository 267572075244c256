"""Mode `viasd`: the method of the paper, VIA-SD (arXiv 2606.12243). Lossy.

The slim verifier sees every draft first, and assigns its tokens to regions by the paper's rule (`gate.PaperRule`).
There is no lenience of the full verifier. At a temperature tokens are samples of the paper's mixture (`mixture`).
"""

from __future__ import annotations

from ...arrays import Floats
from ...tiers.drafter import Draft
from ..gate import PaperRule
from ..mixture import sample_mixture
from ..slim_sampling import SlimJudgement
from .tiered import TieredDecoder


class ViasdDecoder(TieredDecoder):
    """Decodes blocks as `tiered` does with the slim tier first, but samples from the paper's mixture."""

    def sample(self, draft: Draft, slim: Floats, most: int) -> SlimJudgement:
        state, rule = self.state, self.state.trust.rule
        if not (isinstance(rule, PaperRule) and state.sampler.is_distribution):  # mirostat has no distribution to mix
            return super().sample(draft, slim, most)
        return sample_mixture(rule, draft, slim, state.sampler, state.end_tokens, most)
