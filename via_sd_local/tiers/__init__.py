"""The tiers: the verifier, which is the slim and the full tier on one cache, and the drafters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..faces import lazy_names

if TYPE_CHECKING:
    from .drafter import Draft as Draft
    from .drafter import Drafter as Drafter
    from .drafter import Hints as Hints
    from .llama_cpp_drafter import LlamaDraftModelDrafter as LlamaDraftModelDrafter
    from .model_drafter import ModelDrafter as ModelDrafter
    from .prompt_lookup import PromptLookup as PromptLookup
    from .self_drafter import SelfDrafter as SelfDrafter
    from .verifier import Verifier as Verifier

_HOMES = {
    "Draft": ".drafter",
    "Drafter": ".drafter",
    "Hints": ".drafter",
    "LlamaDraftModelDrafter": ".llama_cpp_drafter",
    "ModelDrafter": ".model_drafter",
    "PromptLookup": ".prompt_lookup",
    "SelfDrafter": ".self_drafter",
    "Verifier": ".verifier",
}

__all__ = [
    "Draft",
    "Drafter",
    "Hints",
    "LlamaDraftModelDrafter",
    "ModelDrafter",
    "PromptLookup",
    "SelfDrafter",
    "Verifier",
]

__getattr__ = lazy_names(__name__, _HOMES)
