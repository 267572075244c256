"""Plans of what the constructor of `Llama` is about to load, from which its memory is estimated."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runtime.context import N_BATCH
from ..runtime.footprint import LoadPlan, has_devices_with_memory, plan_of
from ..runtime.placement import CACHE_TYPES, DEFAULT, Placement
from .original import Original

_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(Original.__init__).parameters.items()}


def plans_of(
    model_path: str, original: Mapping[str, Any], draft: str | None, draft_n_gpu_layers: int | None
) -> list[LoadPlan]:
    """Return the plan of the model, and of the draft model if there is one, over a context of the same length.

    Both are files. `original` holds llama-cpp-python's arguments.
    """
    arguments = {**_DEFAULTS, **original}
    if arguments["vocab_only"]:
        return []
    n_ctx, n_batch = int(arguments["n_ctx"]), int(arguments["n_batch"])
    f16 = CACHE_TYPES["f16"]
    verifier = LoadPlan(
        Path(model_path),
        n_ctx,
        min(n_batch, int(arguments["n_ubatch"]), n_ctx or n_batch),
        int(arguments["n_gpu_layers"]),
        offloads=has_devices_with_memory(),
        type_k=f16 if arguments["type_k"] is None else int(arguments["type_k"]),
        type_v=f16 if arguments["type_v"] is None else int(arguments["type_v"]),
        flash_attn=bool(arguments["flash_attn"]),
        offload_kqv=bool(arguments["offload_kqv"]),
        mapped=bool(arguments["use_mmap"]) and arguments["lora_path"] is None,
    )
    if draft is None:
        return [verifier]
    layers = verifier.n_gpu_layers if draft_n_gpu_layers is None else draft_n_gpu_layers
    placement = DEFAULT if layers < 0 else Placement(n_gpu_layers=layers)
    return [verifier, plan_of(Path(draft), placement, n_ctx, N_BATCH)]
