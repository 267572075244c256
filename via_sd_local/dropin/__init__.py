"""The drop-in for llama-cpp-python: `Llama` with drafts and tiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..faces import lazy_names

if TYPE_CHECKING:
    from .llama import Llama as Llama
    from .llama import install as install

_HOMES = {
    "Llama": ".llama",
    "install": ".llama",
}

__all__ = ["Llama", "install"]

__getattr__ = lazy_names(__name__, _HOMES)
