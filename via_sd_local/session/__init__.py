"""From settings to a loaded engine, and from a prompt to the text of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..faces import lazy_names

if TYPE_CHECKING:
    from .session import Session as Session
    from .settings import Settings as Settings

_HOMES = {
    "Session": ".session",
    "Settings": ".settings",
}

__all__ = ["Session", "Settings"]

__getattr__ = lazy_names(__name__, _HOMES)
