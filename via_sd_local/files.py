"""Folders of this package and of its cache, and files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ModelError

PACKAGE = Path(__file__).resolve().parent


def cache_folder() -> Path:
    """Return the folder for models, costs, profiles and histories; it need not exist.

    It is `$VIA_SD_HOME`, or `via-sd-local` in the user's cache folder.
    """
    home = os.environ.get("VIA_SD_HOME")
    if home:
        return Path(home).expanduser().absolute()
    import platformdirs  # here: most commands need no cache, and this import takes milliseconds

    return platformdirs.user_cache_path("via-sd-local", appauthor=False).absolute()


def read_text(path: str, what: str) -> str:
    """The text of a UTF-8 file; ModelError, naming what it should have been, if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ModelError(f"the {what} file {path} is not UTF-8 text") from None
    except OSError as error:
        raise ModelError(f"the {what} file {path} cannot be read: {error.strerror}") from None
