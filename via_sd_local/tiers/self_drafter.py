"""Self-drafting: the verifier drafts with more of its layers skipped, without a second model or a second cache."""

from __future__ import annotations

from collections.abc import Sequence

from ..mask import LayerMask
from .drafter import NO_HINTS, Draft, Drafter, Hints
from .model_drafter import draft_tokens
from .verifier import Verifier


class SelfDrafter(Drafter):
    """Drafts in the verifier's own context under another mask, and removes what it decodes at once.

    Drafts attend to the keys and values that the verifier has computed. When a draft is asked for, the verifier's cache
    must hold the text without its last token, as it does between blocks of the engine.
    """

    name = "self"
    reports_passes = True

    def __init__(self, verifier: Verifier, mask: LayerMask) -> None:
        """Try the mask; ValueError if it skips nothing, or with llama.cpp's reason if it refuses the mask."""
        if not mask:
            raise ValueError("the mask of the drafter skips nothing; drafts would cost as much as the full model")
        if not verifier.can_rewind:
            raise ValueError(
                f"{verifier.model.path.name} cannot draft for itself: its state cannot be rolled back (it is recurrent "
                "or hybrid)"
            )
        verifier.context.check_mask(mask.to_bytes())
        self.mask = mask
        self._verifier = verifier

    def propose(self, text: Sequence[int], limit: int, hints: Hints = NO_HINTS) -> Draft:
        """Draft as the sampler of the hints proposes, from the logits of the masked model."""
        verifier = self._verifier
        if verifier.n_kv != len(text) - 1:
            raise ValueError(f"the text has {len(text)} tokens, and the verifier's cache {verifier.n_kv}, not one less")
        limit = min(limit, verifier.context.n_ctx - len(text) + 1)
        if limit < 1:
            return Draft([])
        with verifier.drafting(self.mask, hints.recorder) as decode:
            return draft_tokens(decode(text[-1]), decode, limit, hints, end_tokens=verifier.model.eog)
