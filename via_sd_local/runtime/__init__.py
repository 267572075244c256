"""GGUF models in llama.cpp: loading, contexts, placement on devices, memory estimates, chat templates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..faces import lazy_names

if TYPE_CHECKING:
    from .context import Context as Context
    from .model import Model as Model
    from .placement import Placement as Placement

_HOMES = {
    "Context": ".context",
    "Model": ".model",
    "Placement": ".placement",
}

__all__ = ["Context", "Model", "Placement"]

__getattr__ = lazy_names(__name__, _HOMES)
