"""Speculative decoding: token ids in, steps of token ids out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..faces import lazy_names

if TYPE_CHECKING:
    from .engine import Engine as Engine
    from .policy import Mode as Mode
    from .policy import Policy as Policy
    from .stats import Stats as Stats
    from .steps import Step as Step
    from .steps import Tier as Tier
    from .watch import Watcher as Watcher

_HOMES = {
    "Engine": ".engine",
    "Mode": ".policy",
    "Policy": ".policy",
    "Stats": ".stats",
    "Step": ".steps",
    "Tier": ".steps",
    "Watcher": ".watch",
}

__all__ = ["Engine", "Mode", "Policy", "Stats", "Step", "Tier", "Watcher"]

__getattr__ = lazy_names(__name__, _HOMES)
