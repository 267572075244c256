"""Lists the models of the registry, the other files in the models folder, and those in the hub's cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from . import hub_cache
from .lookup import is_complete, models_folder
from .reference import Reference, parts_of
from .registry import registry


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A model that can be named on this machine: its size in bytes, and its path, None where the file is absent.

    `made_by` is the command that makes the file, for a model that is not downloaded.
    """

    name: str
    description: str
    license: str
    size: int
    path: Path | None
    made_by: str | None = None


def listing() -> list[CatalogEntry]:
    """Return the registry's models, present or not, those made here, the folder's other files, and the hub's cache."""
    folder, known = models_folder(), registry()
    entries = []
    for model in known.models.values():
        path = folder / model.file
        present = path if is_complete(model, path) else None
        entries.append(CatalogEntry(model.name, model.description, model.license, model.size, present))
    for made in known.made.values():
        path = folder / made.file
        exists = path.is_file()
        size = path.stat().st_size if exists else made.size
        entries.append(
            CatalogEntry(made.name, made.description, made.license, size, path if exists else None, made.command)
        )
    registered = {model.file for model in known}
    for path in sorted(folder.glob("*.gguf")):
        if path.name not in registered and path.is_file():
            entries.append(CatalogEntry(path.name, "not in the registry", "unknown", path.stat().st_size, path))
    for cached in hub_cache.cached_models():
        name = str(_shortest(cached))
        entries.append(CatalogEntry(name, "", "unknown", cached.size, cached.paths[0]))
    return entries


def _shortest(model: hub_cache.CachedModel) -> Reference:
    """Return the shortest reference that stands for a model in the cache."""
    short = replace(model.reference, file=None)
    names = hub_cache.names_in(short.repo, short.revision)
    return short if len({parts_of(name)[0] for name in names}) == 1 else model.reference
