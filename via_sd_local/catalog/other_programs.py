"""Models that Ollama and LM Studio keep on this machine, by the names that those programs show."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from .reference import choose

_OLLAMA_NAME = re.compile(
    r"(?:ollama:)?(?P<model>[\w-][\w.-]*(?:/[\w-][\w.-]*){0,2})(?::(?P<tag>[\w-][\w.-]*))?", re.ASCII
)
_MODEL_LAYER = "application/vnd.ollama.image.model"


def find(name: str) -> Path | None:
    """Return the GGUF of `llama3.2:1b` in Ollama, or of `publisher/model[/file.gguf]` in LM Studio; None without one.

    Raises ModelError if LM Studio's folder of that name has several.
    """
    return _in_ollama(name) or _in_lm_studio(name)


def _in_ollama(name: str) -> Path | None:
    match = _OLLAMA_NAME.fullmatch(name)
    if match is None:
        return None
    parts = match["model"].split("/")
    host, owner = ("registry.ollama.ai", "library")
    if len(parts) > 1:
        owner = parts[-2]
    if len(parts) > 2:
        host = parts[0]
    folder = Path(os.environ.get("OLLAMA_MODELS") or os.path.expanduser("~/.ollama/models"))
    manifest = folder / "manifests" / host / owner / parts[-1] / (match["tag"] or "latest")
    try:
        layers = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
        digest = next(layer["digest"] for layer in layers if layer["mediaType"] == _MODEL_LAYER)
        path = folder / "blobs" / str(digest).replace(":", "-")
    except (OSError, ValueError, LookupError, TypeError, StopIteration, RecursionError):
        return None
    return path if path.is_file() else None


def _in_lm_studio(name: str) -> Path | None:
    parts = name.split("/")
    if not 2 <= len(parts) <= 3 or not all(parts) or {".", ".."} & set(parts):
        return None
    for home in ("~/.lmstudio/models", "~/.cache/lm-studio/models"):
        path = Path(os.path.expanduser(home), *parts)
        if len(parts) == 3 and path.is_file():
            return path
        if len(parts) == 2 and path.is_dir():
            return path / choose((file.name for file in path.iterdir()), None, str(path))
    return None
