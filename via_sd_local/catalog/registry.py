"""The registry of known models: models/registry.json, read and checked."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ..errors import ModelError
from ..files import PACKAGE

# in an installed wheel; in a source checkout
REGISTRY_PATHS = (PACKAGE / "models" / "registry.json", PACKAGE.parent / "models" / "registry.json")

TEXT = re.compile(r"[^\n]+")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
FILE = re.compile(r"[A-Za-z0-9][\w.-]*\.gguf", re.ASCII)
SHA256 = re.compile(r"[0-9a-f]{64}")
REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
REVISION = re.compile(r"\w[\w.-]*", re.ASCII)
HUB_FILE = re.compile(r"[A-Za-z0-9][\w./-]*\.gguf", re.ASCII)
DISTRIBUTION = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
VERSION = re.compile(r"[0-9][A-Za-z0-9.+!]*")


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file in a repository of the Hugging Face hub, or of the mirror that HF_ENDPOINT names."""

    repo: str
    revision: str
    file: str


@dataclass(frozen=True, slots=True)
class WheelPart:
    """A wheel of the package index (its size in bytes) and its member that is one part of the model file."""

    distribution: str
    version: str
    size: int
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class WheelSource:
    """Wheels whose members, one after the other, are the model file."""

    wheels: tuple[WheelPart, ...]


Source: TypeAlias = HubSource | WheelSource


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A model file with a name, the size (bytes) and hash that it must have, and its sources in the order to try."""

    name: str
    description: str
    license: str
    file: str
    size: int
    sha256: str
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class MadeModel:
    """A model file with a name that is not fetched but made on this machine, by `command`; size in bytes."""

    name: str
    description: str
    license: str
    file: str
    size: int
    command: str


@dataclass(frozen=True, slots=True)
class Registry:
    """The known models by name, the name of the default one, and those that are made here."""

    default: str
    models: Mapping[str, CatalogModel]
    made: Mapping[str, MadeModel]


def load(path: Path | None = None) -> Registry:
    """Reads the registry at `path`, or the package's own; raises ModelError if it is absent or not as it should be."""
    if path is None:
        path = next((place for place in REGISTRY_PATHS if place.is_file()), None)
    if path is None:
        raise ModelError(f"no model registry at {' or '.join(map(str, REGISTRY_PATHS))}; reinstall via-sd-local")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"the model registry {path} cannot be read ({error}); reinstall via-sd-local") from error
    top = _Table(data, f"{path}: registry").only("default", "models", "made")
    models = {name: _model(name, table) for name, table in top.tables("models").items()}
    made = {name: _made(name, table) for name, table in top.tables("made").items()} if top.has("made") else {}
    for name in made:
        if name in models:
            raise top.error("made", name, "a name that no other model has")
    entries: list[CatalogModel | MadeModel] = [*models.values(), *made.values()]
    files = [entry.file for entry in entries]
    for entry in entries:
        if files.count(entry.file) > 1:
            raise top.error(f"models.{entry.name}.file", entry.file, "a file name that no other model has")
    default = top.text("default", NAME)
    if default not in models:
        raise top.error("default", default, f"one of {', '.join(models)}")
    return Registry(default, models, made)


def _model(name: str, table: "_Table") -> CatalogModel:
    if not NAME.fullmatch(name):
        raise table.error("name", name, f"text of the form {NAME.pattern}")
    table.only("description", "license", "file", "size", "sha256", "sources")
    return CatalogModel(
        name=name,
        description=table.text("description"),
        license=table.text("license"),
        file=table.text("file", FILE),
        size=table.count("size"),
        sha256=table.text("sha256", SHA256),
        sources=tuple(_source(source) for source in table.items("sources")),
    )


def _made(name: str, table: "_Table") -> MadeModel:
    if not NAME.fullmatch(name):
        raise table.error("name", name, f"text of the form {NAME.pattern}")
    table.only("description", "license", "file", "size", "command")
    return MadeModel(
        name=name,
        description=table.text("description"),
        license=table.text("license"),
        file=table.text("file", FILE),
        size=table.count("size"),
        command=table.text("command"),
    )


def _source(table: "_Table") -> Source:
    kind = table.text("kind")
    if kind == "hub":
        table.only("kind", "repo", "revision", "file")
        return HubSource(table.text("repo", REPO), table.text("revision", REVISION), table.text("file", HUB_FILE))
    if kind == "wheels":
        table.only("kind", "wheels")
        return WheelSource(tuple(_wheel(wheel) for wheel in table.items("wheels")))
    raise table.error("kind", kind, "hub or wheels")


def _wheel(table: "_Table") -> WheelPart:
    table.only("distribution", "version", "size", "sha256", "member")
    return WheelPart(
        distribution=table.text("distribution", DISTRIBUTION),
        version=table.text("version", VERSION),
        size=table.count("size"),
        sha256=table.text("sha256", SHA256),
        member=table.text("member"),
    )


class _Table:
    """A JSON object whose values are checked as they are taken; an error names the key, the value and the remedy."""

    def __init__(self, value: object, where: str) -> None:
        self._where = where
        if not isinstance(value, dict) or not value:
            raise self.error("", value, "an object with entries")
        self._entries: dict[str, object] = value

    def error(self, key: str, value: object, wanted: str) -> ModelError:
        where = f"{self._where}.{key}" if key else self._where
        return ModelError(f"{where} is {value!r}, not {wanted}; correct it, or reinstall via-sd-local")

    def only(self, *keys: str) -> "_Table":
        """Itself; raises ModelError at a key that is not among `keys`."""
        for key, value in self._entries.items():
            if key not in keys:
                raise self.error(key, value, f"known: the keys here are {', '.join(keys)}")
        return self

    def has(self, key: str) -> bool:
        return key in self._entries

    def text(self, key: str, form: re.Pattern[str] = TEXT) -> str:
        value = self._entries.get(key)
        if not isinstance(value, str) or not form.fullmatch(value):
            raise self.error(key, value, f"text of the form {form.pattern}")
        return value

    def count(self, key: str) -> int:
        value = self._entries.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(key, value, "a number of bytes above 0")
        return value

    def tables(self, key: str) -> "dict[str, _Table]":
        where = f"{self._where}.{key}"
        entries = _Table(self._entries.get(key), where)._entries
        return {name: _Table(value, f"{where}.{name}") for name, value in entries.items()}

    def items(self, key: str) -> "list[_Table]":
        value = self._entries.get(key)
        if not isinstance(value, list) or not value:
            raise self.error(key, value, "a list with entries")
        return [_Table(item, f"{self._where}.{key}[{index}]") for index, item in enumerate(value)]
