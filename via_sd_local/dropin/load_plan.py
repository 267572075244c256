"""What the constructor of `Llama` is about to load, for the estimate of its memory."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..catalog.lookup import resolve
from ..runtime.context import N_BATCH
from ..runtime.footprint import LoadPlan, has_devices_with_memory, plan_of
from ..runtime.placement import CACHE_TYPES, DEFAULT, Placement
from .low_level import Original

_DEFAULTS = {name: one.default for name, one in inspect.signature(Original.__init__).parameters.items()}


def plans_of(
    model_path: str, original: Mapping[str, Any], draft: str | None, draft_n_gpu_layers: int | None
) -> list[LoadPlan]:
    """Of the model with llama-cpp-python's arguments, and of the draft model over as long a context if there is one."""
    given = {**_DEFAULTS, **original}
    if given["vocab_only"]:
        return []
    n_ctx, n_batch = int(given["n_ctx"]), int(given["n_batch"])
    f16 = CACHE_TYPES["f16"]
    verifier = LoadPlan(
        Path(model_path),
        n_ctx,
        min(n_batch, int(given["n_ubatch"]), n_ctx or n_batch),
        int(given["n_gpu_layers"]),
        offloads=has_devices_with_memory(),
        type_k=f16 if given["type_k"] is None else int(given["type_k"]),
        type_v=f16 if given["type_v"] is None else int(given["type_v"]),
        flash_attn=bool(given["flash_attn"]),
        offload_kqv=bool(given["offload_kqv"]),
        mapped=bool(given["use_mmap"]) and given["lora_path"] is None,
    )
    if draft is None:
        return [verifier]
    layers = verifier.n_gpu_layers if draft_n_gpu_layers is None else draft_n_gpu_layers
    placement = DEFAULT if layers < 0 else Placement(n_gpu_layers=layers)
    return [verifier, plan_of(resolve(draft), placement, n_ctx, N_BATCH)]
