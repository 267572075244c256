"""Downloads a file of the hub to a path: a partial file there is continued, also by another process."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import ModelError
from .content import LEFTOVERS_AGE, WrongContentError, file_sha256, require_space
from .hub import ANSWER_TIMEOUT, problem_with, progress_bars, require_answer
from .registry import HubSource

_MOST_BYTES = 50 * 1000**3  # that the hub sends over plain HTTP; larger files need the library's own protocol
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """What the hub says of a file: where it lies, its entity tag, and its size in bytes, if it says so."""

    url: str
    etag: str
    size: int | None

    @property
    def sha256(self) -> str | None:
        """The file's hash as hex digits, which is the tag of large files; None for others."""
        return self.etag if _SHA256.fullmatch(self.etag) else None


def describe(source: HubSource) -> RemoteFile:
    """Ask the hub for a file; raises ModelError, soon if there is no network."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

    require_answer()
    url = hf_hub_url(source.repo, source.file, revision=source.revision, endpoint=constants.ENDPOINT)
    try:
        found = get_hf_file_metadata(url, timeout=ANSWER_TIMEOUT)
    except Exception as error:  # the hub library's HTTP library, so its errors, differ between its versions
        raise ModelError(problem_with(source, error)) from error
    if not found.etag:
        raise ModelError(f"{constants.ENDPOINT} gives {source.repo}/{source.file} no entity tag; it is not a hub")
    return RemoteFile(found.location or url, found.etag, found.size)


def download(source: HubSource, remote: RemoteFile, partial: Path, target: Path, *, progress: bool) -> None:
    """Complete `partial`, which may hold the file's first bytes, check it, and move it to `target` on the same disk.

    Whatever ends the download, even a kill, leaves the bytes that have arrived for the next one. One process downloads
    at a time; another one waits for it. Raises ModelError, or OSError as the system reports it.
    """
    with _only_one(partial, progress=progress):
        if target.is_file() and remote.size in (None, target.stat().st_size):
            return  # which another process has downloaded meanwhile
        present = partial.stat().st_size if partial.is_file() else 0
        if remote.size is not None and present > remote.size:
            present = 0
        with partial.open("ab") as file:
            file.truncate(present)
            try:
                with progress_bars(progress):
                    _get(remote, file, present, source.file)
            except OSError as error:
                if not hasattr(error, "response") and error.errno is not None:
                    raise  # of the disk
                raise ModelError(problem_with(source, error)) from error
            except Exception as error:  # see describe
                raise ModelError(problem_with(source, error)) from error
            file.flush()
            os.fsync(file.fileno())
        arrived = remote.sha256 and file_sha256(partial, progress=progress)
        if arrived != remote.sha256:
            partial.unlink()
            raise WrongContentError(f"{source.file} arrived with the SHA-256 {arrived}, not {remote.sha256}")
        os.replace(partial, target)


@contextmanager
def _only_one(path: Path, *, progress: bool) -> Iterator[None]:
    """Let one process at a time into the block for this path; the others wait, and say so once if `progress`."""
    import filelock

    place = path.with_name(f"{path.name}.lock")
    lock = filelock.FileLock(str(place))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        if progress:
            print(f"another process is downloading {path.name}; waiting for it", file=sys.stderr)
        lock.acquire(timeout=-1)
    try:
        yield
    finally:
        lock.release()
        place.unlink(missing_ok=True)


def _get(remote: RemoteFile, file: object, present: int, name: str) -> None:
    from huggingface_hub import constants
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    headers = build_hf_headers()
    if urlsplit(remote.url).netloc != urlsplit(constants.ENDPOINT).netloc:
        headers.pop("authorization", None)  # the token is for the hub, not for where it keeps the files
    http_get(
        remote.url,
        file,  # type: ignore[arg-type]
        resume_size=present,
        headers=headers,
        expected_size=remote.size,
        displayed_filename=Path(name).name,
    )


def names_in(repo: str, revision: str) -> list[str]:
    """Return the names of all files of a repository; raises ModelError, soon if there is no network."""
    from huggingface_hub import HfApi, constants

    require_answer()
    try:
        return list(HfApi(endpoint=constants.ENDPOINT).list_repo_files(repo, revision=revision))
    except Exception as error:  # see describe
        raise ModelError(problem_with(HubSource(repo, revision, "*.gguf"), error)) from error


def download_to_cache(source: HubSource, *, progress: bool) -> Path:
    """Download a file into the hub library's cache and return its path there; raises as `describe` and `download`."""
    import huggingface_hub
    from huggingface_hub import constants

    remote = describe(source)
    repo = f"models--{source.repo.replace('/', '--')}"
    content = Path(constants.HF_HUB_CACHE) / repo / "blobs" / remote.etag
    if not content.is_file() and (remote.size or 0) <= _MOST_BYTES:
        content.parent.mkdir(parents=True, exist_ok=True)
        partial = content.with_name(f"{content.name}.incomplete")
        require_space(content.parent, (remote.size or 0) - (partial.stat().st_size if partial.is_file() else 0))
        download(source, remote, partial, content, progress=progress)
        _clear(content)
    try:
        with progress_bars(progress and not content.is_file()):  # else it only links the content to the revision
            path = huggingface_hub.hf_hub_download(
                source.repo,
                source.file,
                revision=source.revision,
                etag_timeout=ANSWER_TIMEOUT,
                endpoint=constants.ENDPOINT,
            )
    except Exception as error:  # see describe
        raise ModelError(problem_with(source, error)) from error
    return Path(path)


def _clear(content: Path) -> None:
    """Remove what killed downloads of this content by the hub's library left, under random names, a day ago or more."""
    for path in content.parent.glob(f"{content.name}.*.incomplete"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - LEFTOVERS_AGE:
                path.unlink()
