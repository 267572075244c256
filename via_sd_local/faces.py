"""Lazy public names: importing a package loads a module of it only when a name of that module is used (PEP 562)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module-level `__getattr__` for `package` that imports each name from its home when it is first used.

    `homes` maps a public name to the module that defines it, relative to the package (`".engine"`).
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name], package), name)

    return get
