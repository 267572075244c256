"""Loads the models of a request and opens the verifier and the drafters over them."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import TypeVar

from ..mask import LayerMask
from ..runtime.context import N_BATCH
from ..runtime.footprint import plan_of
from ..runtime.limits import DEFAULT_N_CTX
from ..runtime.memory_check import check_memory
from ..runtime.model import Model
from ..tiers.drafter import Drafter
from ..tiers.model_drafter import ModelDrafter
from ..tiers.prompt_lookup import PromptLookup
from ..tiers.self_drafter import SelfDrafter
from ..tiers.verifier import Verifier
from .request import DrafterSpec, LookupSpec, Request, SelfSpec

M = TypeVar("M", bound=Model)
P = TypeVar("P", bound="Verifier | Drafter")


class Loader:
    """Owns what it loads: `close` frees all of it, `close_all_but` what is no longer in use.

    A subclass may supply a verifier that is loaded already.
    """

    def __init__(self) -> None:
        self._models: list[Model] = []
        self._parts: list[Verifier | Drafter] = []

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that are loaded, the verifier's first."""
        return tuple(self._models)

    @property
    def parts(self) -> tuple[Verifier | Drafter, ...]:
        """The verifier and the drafters that are open."""
        return tuple(self._parts)

    def check_memory(self, request: Request, *, is_loaded: bool = False) -> None:
        """Raise ModelError if the models do not fit into main memory; `is_loaded`: the verifier's is in it already."""
        verifier = plan_of(request.verifier, request.placement, request.n_ctx, N_BATCH)
        draft = request.draft_model
        plans = [] if draft is None else [plan_of(draft.path, draft.placement, request.n_ctx, N_BATCH)]
        if is_loaded:
            check_memory(plans, loaded=[verifier])
        else:
            check_memory([verifier, *plans])

    def load_verifier(self, request: Request) -> Model:
        """Load the verifier's model; a warning for a context that is longer than the model was trained for."""
        model = self.own_model(Model(request.verifier, request.placement))
        if request.n_ctx is not None and request.n_ctx > model.n_ctx_train:
            warnings.warn(
                f"n_ctx is {request.n_ctx}, but {model.path.name} was trained for {model.n_ctx_train} tokens",
                RuntimeWarning,
                stacklevel=4,
            )
        return model

    def open_verifier(self, request: Request, model: Model, mask: LayerMask | None) -> Verifier:
        """Open a context over the model; the slim tier skips `mask`, if there is one."""
        n_ctx = min(DEFAULT_N_CTX, model.n_ctx_train) if request.n_ctx is None else request.n_ctx
        return self.own(Verifier(model, n_ctx=n_ctx, mask=mask, n_threads=request.threads))

    def open_drafter(self, request: Request, spec: DrafterSpec, verifier: Verifier) -> Drafter:
        """Open a drafter for this verifier; a draft model in the same file shares the verifier's weights."""
        if isinstance(spec, LookupSpec):
            return self.own(PromptLookup())
        target = verifier.model
        if isinstance(spec, SelfSpec):
            return self.own(SelfDrafter(verifier, fitted(spec.mask, target)))
        is_shared = spec.placement == request.placement and spec.path.samefile(target.path)
        try:
            model = target if is_shared else self.own_model(Model(spec.path, spec.placement))
        except ValueError as error:
            raise ValueError(f"draft_placement: {error}") from None
        return self.own(ModelDrafter(model, target, n_ctx=verifier.context.n_ctx, n_threads=spec.threads))

    def own_model(self, model: M) -> M:
        """Close this model with the others."""
        self._models.append(model)
        return model

    def own(self, part: P) -> P:
        """Close this verifier or drafter with the others."""
        self._parts.append(part)
        return part

    def close_all_but(self, parts: Collection[Verifier | Drafter]) -> None:
        """Close the other parts, and the draft models that these parts do not use."""
        for part in reversed(self._parts):
            if part not in parts:
                part.close()
        self._parts = [part for part in self._parts if part in parts]
        used = [self._models[0], *(part.model for part in parts if isinstance(part, ModelDrafter))]
        for model in self._models:
            if model not in used:
                model.close()
        self._models = [model for model in self._models if model in used]

    def close(self) -> None:
        """Free contexts and models."""
        for part in [*reversed(self._parts), *reversed(self._models)]:
            part.close()
        self._parts.clear()
        self._models.clear()


def fitted(mask: LayerMask, model: Model) -> LayerMask:
    """Return the mask over the layers that llama.cpp counts; a header may also count multi-token prediction layers."""
    return LayerMask.of(model.n_layer, attn=mask.attn, ffn=mask.ffn)
