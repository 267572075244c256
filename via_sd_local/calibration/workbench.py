"""The open models and the saved work that every stage of a calibration uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..tiers.verifier import Verifier

if TYPE_CHECKING:
    from ..mask import LayerMask
    from ..progress import StageBars
    from ..runtime.model import Model
    from .plan import Plan
    from .work import Work


@dataclass(frozen=True, slots=True)
class Workbench:
    """What the stages share: the plan, the open models, the number of threads, the saved work and the progress bars.

    `draft_hash` is the hash of the draft model's fingerprint; None without a draft model.
    """

    plan: Plan
    model: Model
    draft: Model | None
    draft_hash: str | None
    threads: int
    work: Work
    bars: StageBars

    @contextmanager
    def verifier(self, mask: LayerMask | None, n_ctx: int) -> Iterator[Verifier]:
        """Open a verifier whose slim tier has this mask, with a context of `n_ctx` tokens."""
        with closing(Verifier(self.model, n_ctx=n_ctx, mask=mask or None, n_threads=self.threads)) as verifier:
            yield verifier
