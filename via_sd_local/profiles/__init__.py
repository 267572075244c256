"""Routing profiles: what calibration found for a pair of models, as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..faces import lazy_names

if TYPE_CHECKING:
    from .profile import Profile as Profile

_HOMES = {
    "Profile": ".profile",
}

__all__ = ["Profile"]

__getattr__ = lazy_names(__name__, _HOMES)
