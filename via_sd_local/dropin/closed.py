"""What a closed object becomes: its methods and properties raise, so that none reaches memory that is freed."""

from __future__ import annotations

import functools
from typing import Any

from .turns import CLOSED

_SPECIAL = ("__call__", "__getstate__")
_HANDLES = ("batch", "ctx", "memory", "model", "vocab")  # attributes of llama-cpp-python's classes that hold pointers


class Refusal:
    """A data descriptor, which goes before the attributes of the instance, and raises ValueError."""

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        raise ValueError(CLOSED)

    def __set__(self, instance: object, value: object) -> None:
        raise ValueError(CLOSED)


def close_off(thing: Any) -> None:
    """Let every public method and property of an object raise ValueError from now on, except `close`.

    Also refuses its native handles. Other data that its instance holds, and static and class methods, stay.
    """
    kind: Any = type(thing)
    thing.__class__ = _closed(kind)


@functools.cache
def _closed(kind: Any) -> Any:
    """Return a subclass of the same name whose members are refused."""
    refused = {
        name: Refusal()
        for base in kind.__mro__[:-1]
        for name, member in vars(base).items()
        if _is_public(name) and (callable(member) or hasattr(member, "__get__"))
        if not isinstance(member, (staticmethod, classmethod))
    }
    handles = {name: Refusal() for name in _HANDLES}
    return type(kind.__name__, (kind,), {**handles, **refused, "__module__": kind.__module__, "__doc__": kind.__doc__})


def _is_public(name: str) -> bool:
    return name in _SPECIAL or (not name.startswith("_") and name != "close")
