"""The engine on a model and a context that llama-cpp-python's own class has loaded and will free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..binding import llama
from ..mask import LayerMask
from ..runtime.context import Context
from ..runtime.devices import default_devices, local_devices
from ..runtime.model import Model
from ..runtime.placement import Placement
from ..session.session import Session
from ..session.settings import Settings
from ..tiers.drafter import Drafter
from ..tiers.verifier import Verifier


class AdoptedModel(Model):
    """A model that someone else frees."""

    def __init__(self, path: str | Path, handle: int, placement: Placement) -> None:
        self.path, self.placement, self.servers = Path(path), placement, None
        self.n_devices = len(default_devices(local_devices())) if placement.n_gpu_layers else 0
        self._take(handle)

    def close(self) -> None:
        """Let go of it; ValueError while contexts of this model are open."""
        if self.users:
            super().close()
        self._handle = None


class AdoptedContext(Context):
    """A context that someone else frees, with sizes as llama.cpp rounded them."""

    def __init__(self, model: Model, handle: int) -> None:
        n_ctx, n_batch = int(llama.llama_n_ctx(handle)), int(llama.llama_n_batch(handle))
        self._take(model, handle, n_ctx, n_batch, int(llama.llama_n_threads(handle)))

    def close(self) -> None:
        """Free the buffers."""
        if self._handle is not None:
            self._let_go()


class AdoptedSession(Session):
    """A session whose verifier is loaded already; `drafter` replaces the one that the settings ask for."""

    def __init__(
        self,
        settings: Settings,
        context: AdoptedContext,
        drafter: Drafter | None = None,
        draft_threads: int | None = None,
        *,
        can_rewind: bool = True,
    ) -> None:
        """`draft_threads` None is as many as the settings say. `can_rewind`: the cache keeps all that it is given."""
        self._can_rewind = can_rewind
        self._context = context
        self._drafter = drafter
        self._draft_threads = draft_threads or settings.threads
        super().__init__(settings)

    def _check_memory(self, settings: Settings) -> None:
        """Done already, before the verifier was loaded."""

    def _load_model(self, name: str, placement: Placement) -> Model:
        if self._models:
            return super()._load_model(name, placement)
        self._models.append(self._context.model)
        return self._context.model

    def _n_ctx(self, settings: Settings) -> int:
        return self._context.n_ctx

    def _open_verifier(self, settings: Settings, n_ctx: int, mask: LayerMask | None) -> Verifier:
        verifier = Verifier(self.model, n_ctx=n_ctx, mask=mask, context=self._context)
        verifier.can_rewind &= self._can_rewind
        return verifier

    def _load_drafter(self, kind: str, settings: Settings, verifier: Verifier) -> Drafter:
        if self._drafter is not None:
            return self._drafter
        return super()._load_drafter(kind, replace(settings, threads=self._draft_threads), verifier)
