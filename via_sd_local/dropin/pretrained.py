"""Downloads files of a Hugging Face repository by name or pattern."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from typing import Any

from ..catalog import hub
from ..catalog.registry import HubSource
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

    Raises ValueError for a pattern that matches no file or several, ModelError where the hub cannot be reached and a
    file is not in its cache.
    """
    import huggingface_hub

    if filename is None:
        raise ValueError(f"filename is None; name a file of {repo_id}, or a pattern like *Q4_0.gguf")
    patterns = [filename, *(additional_files or ())]
    try:
        names = huggingface_hub.list_repo_files(repo_id)
    except Exception as error:  # the hub library's HTTP errors differ between its versions
        return _cached(repo_id, patterns, error)
    options: dict[str, Any] = {"local_dir": local_dir, "cache_dir": cache_dir}
    paths = [
        huggingface_hub.hf_hub_download(repo_id, file, **options)
        for file in [_only_match(repo_id, names, pattern) for pattern in patterns]
    ]
    return str(paths[0])


def _only_match(repo_id: str, names: Sequence[str], pattern: str) -> str:
    matches = [name for name in names if fnmatch.fnmatch(name, pattern)]
    if len(matches) != 1:
        count = f"{len(matches)} files match" if matches else "no file matches"
        raise ValueError(f"{count} {pattern!r} in {repo_id}; it has {', '.join(matches or names) or 'no files'}")
    return matches[0]


def _cached(repo_id: str, patterns: Sequence[str], error: Exception) -> str:
    paths = [hub.cached(HubSource(repo_id, "main", pattern)) for pattern in patterns]
    missing = [pattern for pattern, path in zip(patterns, paths, strict=True) if path is None]
    if missing:
        raise ModelError(
            f"{repo_id} cannot be listed ({hub.reason(error)}), and {missing[0]} is not in the local "
            "cache of the hub; set HF_ENDPOINT to a mirror, or pass the path of a file to Llama"
        ) from error
    return str(paths[0])
