"""Paths as users give them: strings or `os.PathLike`, with `~` for the home folder."""

from __future__ import annotations

import os
from typing import Any

from ..catalog import lookup
from ..errors import ModelError


class NoModelFile(ModelError, ValueError):
    """A model that is not on this machine; llama-cpp-python raises ValueError for it."""


def model_file(name: str, value: Any) -> str:
    """Return the file of a path or a catalogue name; `name` is the argument.

    Raises NoModelFile, with the remedy, where there is no such file, and TypeError for anything but a path.
    """
    path = path_text(name, value)
    try:
        return str(lookup.resolve(path))
    except ModelError as error:
        raise NoModelFile(f"{name}: {error}") from None


def path_text(name: str, value: Any) -> str:
    """Return a path as a string, with `~` expanded; TypeError, with the argument's name, for anything else."""
    try:
        return os.path.expanduser(os.fsdecode(value))
    except TypeError:
        raise TypeError(f"{name} is {value!r:.80}; it must be a path") from None
