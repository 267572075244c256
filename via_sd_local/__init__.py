"""Three-tier speculative decoding (VIA-SD) for GGUF models on llama.cpp.

Public names are imported when they are first used; those that load llama.cpp are `Llama`, `install`, `Session` and
`Engine`. `__version__` is the version of the installed package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .faces import lazy_names

if TYPE_CHECKING:
    from .dropin.llama import Llama as Llama
    from .dropin.llama import install as install
    from .engine.engine import Engine as Engine
    from .engine.policy import Mode as Mode
    from .engine.policy import Policy as Policy
    from .runtime.placement import Placement as Placement
    from .sampling.params import SamplingParams as SamplingParams
    from .session.session import Session as Session
    from .session.settings import Settings as Settings
    from .tiers.drafter import Draft as Draft
    from .tiers.drafter import Drafter as Drafter
    from .tiers.drafter import Hints as Hints

_HOMES = {
    "Draft": ".tiers.drafter",
    "Drafter": ".tiers.drafter",
    "Engine": ".engine.engine",
    "Hints": ".tiers.drafter",
    "Llama": ".dropin.llama",
    "Mode": ".engine.policy",
    "Placement": ".runtime.placement",
    "Policy": ".engine.policy",
    "SamplingParams": ".sampling.params",
    "Session": ".session.session",
    "Settings": ".session.settings",
    "install": ".dropin.llama",
}

__all__ = [
    "Draft",
    "Drafter",
    "Engine",
    "Hints",
    "Llama",
    "Mode",
    "Placement",
    "Policy",
    "SamplingParams",
    "Session",
    "Settings",
    "install",
]

_lazy = lazy_names(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    """Return a public name, or `__version__`, which takes a look at the installed distributions."""
    if name == "__version__":
        from ._version import version

        return version()
    return _lazy(name)
