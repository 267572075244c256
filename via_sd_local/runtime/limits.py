"""The default context length, which modules without the compiled library also need."""

from __future__ import annotations

DEFAULT_N_CTX = 4096  # tokens; models that were trained for fewer get those
