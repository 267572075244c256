"""The model and the context that llama-cpp-python's own class has loaded and will free, for a session."""

from __future__ import annotations

from dataclasses import replace

from ..mask import LayerMask
from ..runtime.context import Context
from ..runtime.model import Model
from ..session.loader import Loader
from ..session.request import DrafterSpec, ModelSpec, Request
from ..tiers.drafter import Drafter
from ..tiers.verifier import Verifier


class AdoptedLoader(Loader):
    """Supplies a verifier that is loaded already; `drafter` replaces the one that the settings name."""

    def __init__(
        self,
        context: Context,
        drafter: Drafter | None = None,
        draft_threads: int | None = None,
        *,
        can_rewind: bool = True,
    ) -> None:
        """`draft_threads` None is the number in the settings; `can_rewind` False forbids to roll the cache back."""
        super().__init__()
        self._context = context
        self._drafter = drafter
        self._draft_threads = draft_threads
        self._can_rewind = can_rewind

    def load_verifier(self, request: Request) -> Model:
        return self.own_model(self._context.model)

    def open_verifier(self, request: Request, model: Model, mask: LayerMask | None) -> Verifier:
        verifier = Verifier(model, n_ctx=self._context.n_ctx, mask=mask, context=self._context)
        verifier.can_rewind &= self._can_rewind
        return self.own(verifier)

    def open_drafter(self, request: Request, spec: DrafterSpec, verifier: Verifier) -> Drafter:
        if self._drafter is not None:
            return self.own(self._drafter)
        if isinstance(spec, ModelSpec) and self._draft_threads is not None:
            spec = replace(spec, threads=self._draft_threads)
        return super().open_drafter(request, spec, verifier)
