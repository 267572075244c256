"""Sizes of contexts that hold for every model."""

from __future__ import annotations

DEFAULT_N_CTX = 4096  # positions of a context, unless the model was trained for fewer
