"""Lists the models of the registry and the other files in the models folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .lookup import is_complete, models_folder
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
    """Return the registry's models, present or not, then those made here, then the models folder's other files."""
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
    return entries
