"""Downloads files of a Hugging Face repository by name or pattern; offline, what was downloaded before is used."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from pathlib import Path

from ..catalog import hub
from ..errors import ModelError


def fetch(
    repo_id: str,
    filename: str | None,
    additional_files: Sequence[str] | None = None,
    *,
    local_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> str:
    """Download the file that `filename` matches and one for each of `additional_files`; returns the first's path.

    Raises ValueError for a pattern that matches no file or several, ModelError where the hub does not answer and no
    file that matches was downloaded to the same folder before.
    """
    import huggingface_hub

    if filename is None:
        raise ValueError(f"filename is None; name a file of {repo_id}, or a pattern like *Q4_0.gguf")
    patterns = [filename, *(additional_files or ())]
    folder, cache = (None if given is None else Path(given).expanduser() for given in (local_dir, cache_dir))
    problem = hub.why_unreachable()  # huggingface_hub alone takes over 20 seconds to find out
    if problem is None:
        try:
            names = huggingface_hub.list_repo_files(repo_id)
        except Exception as error:  # the hub library's HTTP errors differ between its versions
            problem = hub.reason(error)
    if problem is not None:
        here = hub.files_of(repo_id, cache) if folder is None else folder
        return str(_downloaded(repo_id, here, patterns, problem))
    paths = [
        huggingface_hub.hf_hub_download(repo_id, file, local_dir=folder, cache_dir=cache)
        for file in [_only_match(repo_id, names, pattern) for pattern in patterns]
    ]
    return str(paths[0])


def _only_match(repo_id: str, names: Sequence[str], pattern: str) -> str:
    matches = [name for name in names if fnmatch.fnmatch(name, pattern)]
    if len(matches) != 1:
        count = f"{len(matches)} files match" if matches else "no file matches"
        raise ValueError(f"{count} {pattern!r} in {repo_id}; it has {', '.join(matches or names) or 'no files'}")
    return matches[0]


def _downloaded(repo_id: str, folder: Path | None, patterns: Sequence[str], problem: str) -> Path:
    """Return the file in a folder that the first pattern matches, if there is one for each pattern."""
    found = [] if folder is None else [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    names = [path.as_posix() for path in found if path.parts[0] != ".cache"]  # the hub's records of a local_dir
    missing = [pattern for pattern in patterns if not fnmatch.filter(names, pattern)]
    if folder is None or missing:
        raise ModelError(
            f"{repo_id} cannot be listed ({problem}), and {(missing or patterns)[0]} was not downloaded to "
            f"{folder or 'the local cache of the hub'} before; set HF_ENDPOINT to a mirror, or pass the path of a "
            "file to Llama"
        )
    paths = [folder / _only_match(repo_id, names, pattern) for pattern in patterns]
    return paths[0]
