"""Resolves names of models to GGUF files on this machine, without any network."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from ..errors import ModelError
from ..files import needed_cache_folder
from . import hub, hub_cache, other_programs
from .reference import AmbiguousError, Reference, choose, parse_reference, parts_of
from .registry import CatalogModel, MadeModel, registry


def models_folder() -> Path:
    """Return the folder where models are kept, `models` in the cache folder; it need not exist.

    Raises ModelError for a user without a home folder.
    """
    return needed_cache_folder() / "models"


def default_name() -> str:
    """Return the name of the model to use when none is given; raises ModelError where the registry is broken."""
    return registry().default


def is_known(name: str) -> bool:
    """Tell whether `pull` has a source for a name: the registry's models and every `hf:` reference."""
    return name.startswith("hf:") or name in registry().models


def resolve(name: str) -> Path:
    """Return the file of a model that is on this machine; of a split one, the first part.

    `name` is a path (also of a folder with one GGUF), a name of the registry, a file in the models folder, a cached
    `hf:` reference, or a model of Ollama (`llama3.2:1b`) or LM Studio (`publisher/model`). Raises ModelError, with the
    remedy, where there is no such file, or several are meant.
    """
    path = Path(os.path.expanduser(name))
    if os.path.isfile(path):  # unlike Path's own methods, these two never raise
        return _first_part(path)
    if os.path.isdir(path):
        return _first_part(path / choose(os.listdir(path), None, f"the folder {name}"))
    if name.startswith("hf:"):
        cached = cached_file(parse_reference(name))
        if cached is None:
            raise ModelError(f"{name} is not in the hub cache; run `via-sd-local models pull {name}`")
        return cached
    known = registry()
    if name in known.models:
        return _downloaded_file(known.models[name])
    if name in known.made:
        return made_file(known.made[name])
    if Path(name).name == name and name.endswith(".gguf") and (models_folder() / name).is_file():
        return _first_part(models_folder() / name)
    other = other_programs.find(name)
    if other is not None:
        return _first_part(other)
    if _looks_like_path(name):
        raise ModelError(f"{name} does not exist; check the path")
    raise unknown(name)


def cached_file(reference: Reference) -> Path | None:
    """Return the file of a reference in the hub's cache, the first part of a split one; None unless all is there.

    Raises ModelError where the reference leaves open which of the cached files is meant.
    """
    names = () if reference.file else hub_cache.names_in(reference.repo, reference.revision)
    if not names and not reference.file:
        return None
    try:
        paths = [hub.cached(source) for source in reference.sources(names)]
    except AmbiguousError:
        if reference.quant:
            return None  # the repository may have what the cache lacks
        raise
    return paths[0] if all(paths) else None


def _first_part(path: Path) -> Path:
    parts = [path.with_name(name) for name in parts_of(path.name)]
    absent = [part.name for part in parts if not part.is_file()]
    if absent:
        raise ModelError(f"{path} is one of {len(parts)} parts, and {absent[0]} is absent; all belong into one folder")
    return parts[0]


def made_file(model: MadeModel) -> Path:
    """Return the file of a model that is made on this machine; raises ModelError, with the command, if it is absent."""
    path = models_folder() / model.file
    if not path.is_file():
        raise ModelError(f"{model.name} is not on this machine, and not fetched but made: run `{model.command}`")
    return path


def is_complete(model: CatalogModel, path: Path) -> bool:
    """Tell whether a file exists and has the model's size; its hash was checked when it was downloaded."""
    return path.is_file() and path.stat().st_size == model.size


def unknown(name: str) -> ModelError:
    """Return the error for a name that the registry does not have; it lists the names and suggests the closest one."""
    names = [model.name for model in registry()]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return ModelError(
        f"no model is called {name!r}; {hint}known are {', '.join(names)}, or give a path or hf:OWNER/REPO"
    )


def _downloaded_file(model: CatalogModel) -> Path:
    path = models_folder() / model.file
    remedy = f"run `via-sd-local models pull {model.name}`"
    if not path.is_file():
        raise ModelError(f"{model.name} is not on this machine ({path} is absent); {remedy}")
    if not is_complete(model, path):
        raise ModelError(f"{path} has {path.stat().st_size} bytes, and {model.name} has {model.size}; {remedy}")
    return path


def _looks_like_path(name: str) -> bool:
    separators = {"/", os.sep, os.altsep or os.sep}
    return name.endswith(".gguf") or name.startswith((".", "~")) or any(separator in name for separator in separators)
