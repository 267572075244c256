"""The command line: `via-sd-local` and its subcommands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..faces import lazy_names

if TYPE_CHECKING:
    from .program import main as main

_HOMES = {
    "main": ".program",
}

__all__ = ["main"]

__getattr__ = lazy_names(__name__, _HOMES)
