"""Three-tier speculative decoding (VIA-SD) for GGUF models on llama.cpp."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """`__version__`, looked up when it is asked for: that takes a moment, and few ask."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import metadata

    try:
        return metadata.version("via-sd-local")
    except metadata.PackageNotFoundError:  # run from a checkout that was not installed
        return "0+unknown"
