"""Three-tier speculative decoding (VIA-SD) for GGUF models on llama.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .llama import Llama as Llama
    from .llama import install as install

__all__ = ["Llama", "install"]


def __getattr__(name: str) -> Any:
    """`Llama` and `install`, which load llama.cpp, and `__version__`, when they are first asked for."""
    if name in ("Llama", "install"):
        from . import llama

        return getattr(llama, name)
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import metadata

    try:
        return metadata.version("via-sd-local")
    except metadata.PackageNotFoundError:  # run from a checkout that was not installed
        return "0+unknown"
