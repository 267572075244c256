"""Three-tier speculative decoding (VIA-SD) for GGUF models on llama.cpp."""

from importlib import metadata

try:
    __version__ = metadata.version("via-sd-local")
except metadata.PackageNotFoundError:  # run from a checkout that was not installed
    __version__ = "0+unknown"
