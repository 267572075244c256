"""Methods of `Llama` that a user has overridden, in a subclass or on the object."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from .closed import Refusal


def is_overridden(thing: object, base: type, name: str) -> bool:
    """Return whether the method `name` of an object is another one than that of its class `base`."""
    member = getattr(type(thing), name)
    return name in vars(thing) or (member is not getattr(base, name) and not isinstance(member, Refusal))


def warn_not_called(thing: object, base: type, names: Sequence[str], caller: str) -> None:
    """Warn about the first overridden method of these, since `caller` runs the engine and does not call it."""
    for name in names:
        if is_overridden(thing, base, name):
            warnings.warn(
                f"{name} is overridden, but {caller} does not call it: the engine decodes and samples by itself",
                RuntimeWarning,
                stacklevel=3,
            )
            return
