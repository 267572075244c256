"""Where the built libraries lie, and what their files are called."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
LIBRARIES = PACKAGE / "lib"


def library_file(name: str, platform: str = sys.platform) -> str:
    """Return the file name of a built library such as `ggml-base`; `platform` is a value of `sys.platform`."""
    if platform == "win32":
        return f"{name}.dll"
    return f"lib{name}.dylib" if platform == "darwin" else f"lib{name}.so"
