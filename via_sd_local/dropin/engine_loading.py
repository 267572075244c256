"""Opens a session, the engine with its drafters, on the model and context that llama-cpp-python has loaded."""

from __future__ import annotations

from typing import Any

from ..binding import llama
from ..runtime.context import Context
from ..runtime.model import Model
from ..runtime.placement import DEFAULT, Placement
from ..session.session import Session
from ..session.settings import Settings
from ..tiers.drafter import Drafter
from ..tiers.llama_cpp_drafter import LlamaDraftModelDrafter
from .adopted import AdoptedLoader
from .options import TierOptions
from .original import Original


def generates_text(llm: Original) -> bool:
    """Return whether the loaded model decodes text: it has a decoder and a KV cache, and no encoder."""
    model = llm._model.model
    return bool(not llama.llama_model_has_encoder(model) and llama.llama_model_has_decoder(model) and llm._ctx.memory)


def open_session(llm: Original, options: TierOptions, draft_model: Any) -> Session:
    """Open the session; `draft_model` is llama-cpp-python's drafter, None for that of the options.

    Raises ValueError, ModelError or NativeError for options that do not fit the model.
    """
    drafter = _drafter_object(options, draft_model)
    placement, draft_placement = _placements(llm, options)
    settings = Settings(
        llm.model_path,
        draft=options.draft_model_path,
        drafter=options.drafter if drafter is None and isinstance(options.drafter, str) else "lookup",
        draft_mask=options.draft_mask,
        mode=options.mode,
        profile=options.profile if drafter is None else None,  # a profile describes a pair of files
        mask=options.mask,
        thresholds=options.thresholds,
        max_deviation=options.max_deviation,
        draft_tokens=options.draft_tokens,
        router=options.router,
        audit_every=options.audit_every,
        write_through=options.write_through,
        n_ctx=llm._n_ctx,
        threads=llm.n_threads,
        placement=placement,
        draft_placement=draft_placement,
        check_memory=False,  # done before the verifier was loaded
        remeasure=options.remeasure,
    )
    model = llm._model.model
    context = Context.borrow(Model.borrow(llm.model_path, model, placement), llm._ctx.ctx)
    keeps_all = bool(llm.context_params.swa_full or not llama.llama_model_n_swa(model))
    if not keeps_all and settings.drafter_kinds:
        raise ValueError(
            "swa_full is False, and a cache that drops positions outside its window cannot take drafts back; "
            "leave out swa_full=False or the drafter"
        )
    return Session(settings, AdoptedLoader(context, drafter, options.draft_n_threads, can_rewind=keeps_all))


def _drafter_object(options: TierOptions, draft_model: Any) -> Drafter | None:
    """Return the drafter that the user supplies as an object, None if it is named."""
    if draft_model is not None:
        return LlamaDraftModelDrafter(draft_model)
    return None if isinstance(options.drafter, str) else options.drafter


def _placements(llm: Original, options: TierOptions) -> tuple[Placement, Placement]:
    """Return the placement of the verifier and of the draft model, the same unless the options differ."""
    n_layers = min(llm.model_params.n_gpu_layers, llama.llama_model_n_layer(llm._model.model) + 1)
    placement, draft_layers = Placement(n_gpu_layers=n_layers), options.draft_n_gpu_layers
    if options.draft_model_path is None:
        if draft_layers is not None:
            raise ValueError("draft_n_gpu_layers is given, but there is no draft model (draft_model_path)")
        return placement, DEFAULT
    return placement, placement if draft_layers is None else Placement(n_gpu_layers=draft_layers)
