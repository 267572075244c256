"""Removes models that this package or the hub's library keeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelError
from . import hub_cache
from .lookup import cached_file, models_folder
from .reference import parse_reference, parts_of
from .registry import registry


@dataclass(frozen=True, slots=True)
class Removed:
    """A model that has been removed: where its first file was, and how many bytes it took."""

    path: Path
    size: int


def remove(name: str) -> Removed:
    """Remove the files of a name of `models list`, and what an interrupted download of it has left.

    Raises ModelError for a model that is absent or is not kept here, such as a path or a model of another program.
    """
    try:
        return _from_cache(name) if name.startswith("hf:") else _from_folder(name)
    except OSError as error:
        raise ModelError(f"{name} cannot be removed: {error.strerror or error}") from None


def _from_cache(name: str) -> Removed:
    path = cached_file(parse_reference(name))
    model = next((model for model in hub_cache.cached_models() if path in model.paths), None)
    if path is None or model is None:
        raise ModelError(f"{name} is not in the hub cache; `via-sd-local models list` shows what is")
    size = model.size
    hub_cache.remove(model)
    return Removed(path, size)


def _from_folder(name: str) -> Removed:
    known, folder = registry(), models_folder()
    model = known.models.get(name)
    file = model.file if model else known.made[name].file if name in known.made else name
    if Path(file).name != file or not file.endswith(".gguf"):
        raise ModelError(f"{name!r} is none of the models that are kept here; `via-sd-local models list` shows those")
    paths = [folder / part for part in parts_of(file)]
    present = [path for path in paths if path.is_file()]
    partial = [] if model is None else [folder / ".downloads" / f"{model.sha256}.part"]
    partial = [path for path in partial if path.is_file()]
    if not present and not partial:
        raise ModelError(f"{name} is not on this machine; `via-sd-local models list` shows what is")
    size = sum(path.stat().st_size for path in [*present, *partial])
    for path in [*present, *partial]:
        path.unlink()
    return Removed(paths[0], size)
