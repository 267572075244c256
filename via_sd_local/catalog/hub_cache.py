"""The GGUF files in huggingface_hub's cache on this machine, which other programs share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .reference import Reference, parts_of


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model in the cache: its reference, and its files, the parts of a split one in order."""

    reference: Reference
    paths: tuple[Path, ...]

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(path.stat().st_size for path in self.paths)


def names_in(repo: str, revision: str) -> list[str]:
    """Return the names of a repository's cached GGUF files; empty if there are none."""
    place = _snapshot(_folder() / f"models--{repo.replace('/', '--')}", revision)
    return [] if place is None else sorted(path.relative_to(place).as_posix() for path in _ggufs(place))


def cached_models() -> Iterator[CachedModel]:
    """Iterate over the whole models in the cache, by repository; of each repository, those of its branches."""
    for repo in sorted(_folder().glob("models--*--*")):
        name = repo.name.removeprefix("models--").replace("--", "/")
        for ref in sorted(path for path in (repo / "refs").glob("**/*") if path.is_file()):
            place = _snapshot(repo, ref.relative_to(repo / "refs").as_posix())
            for path in [] if place is None else sorted(_ggufs(place)):
                paths = tuple(path.with_name(part) for part in parts_of(path.name))
                if path == paths[0] and all(part.is_file() for part in paths) and place is not None:
                    file = path.relative_to(place).as_posix()
                    yield CachedModel(Reference(name, ref.name, file), paths)


def remove(model: CachedModel) -> None:
    """Remove the files from the cache, and their contents unless another revision has them; OSError as reported."""
    for path in model.paths:
        content = path.resolve()
        path.unlink()
        repo = next(parent for parent in path.parents if parent.name == "snapshots").parent
        if content != path and content.is_file() and not any(content == other.resolve() for other in _links(repo)):
            content.unlink()


def _folder() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _snapshot(repo: Path, revision: str) -> Path | None:
    ref = repo / "refs" / revision
    try:
        commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else revision
    except (OSError, ValueError):
        return None
    place = repo / "snapshots" / commit
    return place if place.is_dir() else None


def _ggufs(place: Path) -> Iterator[Path]:
    return (path for path in place.rglob("*.gguf") if path.is_file())


def _links(repo: Path) -> Iterator[Path]:
    return (path for path in (repo / "snapshots").rglob("*") if path.is_symlink())
