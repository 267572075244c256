"""The package's folders, and files that are read with one kind of error and written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TextIO, overload

from .errors import ModelError

PACKAGE = Path(__file__).resolve().parent
NO_FOLDER = Path(os.devnull) / "via-sd-local"  # nothing can be read or written in it


def cache_folder() -> Path:
    """Return the folder for models, costs, profiles and histories; it need not exist.

    It is `$VIA_SD_HOME`, or `via-sd-local` in the user's cache folder. A user without a home folder, such as a number
    without a name in a container, has `NO_FOLDER`: what is only kept to save time is then not kept.
    """
    home = os.environ.get("VIA_SD_HOME")
    if home:
        folder = Path(os.path.expanduser(home))
    else:
        import platformdirs  # here: most commands need no cache, and this import takes milliseconds

        try:
            folder = platformdirs.user_cache_path("via-sd-local", appauthor=False)
        except RuntimeError:  # as pathlib reports that there is no home folder
            return NO_FOLDER
    return NO_FOLDER if folder.parts[0].startswith("~") else folder.absolute()


def needed_cache_folder() -> Path:
    """Return `cache_folder()` for files that cannot be done without; raises ModelError where there is none."""
    folder = cache_folder()
    if folder == NO_FOLDER:
        raise ModelError("this user has no home folder (HOME) to keep files in: set VIA_SD_HOME to a folder")
    return folder


def user_path(text: str) -> Path:
    """Return the path that a user means; `~` is the home folder, and `~name` stays where there is no such user."""
    return Path(os.path.expanduser(text))


def read_text(path: str | Path, what: str) -> str:
    """Return the text of a UTF-8 file, without a byte order mark.

    Raises ModelError, which calls it the `what` file, where it cannot be read or is not UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ModelError(f"the {what} file {path} is not UTF-8 text") from None
    except OSError as error:
        raise ModelError(f"the {what} file {path} cannot be read: {error.strerror}") from None


@overload
def replacing(path: Path, mode: Literal["w"] = "w") -> AbstractContextManager[TextIO]: ...


@overload
def replacing(path: Path, mode: Literal["wb"]) -> AbstractContextManager[BinaryIO]: ...


def replacing(path: Path, mode: Literal["w", "wb"] = "w") -> AbstractContextManager[IO[Any]]:
    """Open a new file (`w`: UTF-8 text, `wb`: bytes) that takes the place of `path` when the block ends.

    Its data is on disk before it takes that place. Where the block raises, or the disk is full, `path` stays as it was
    and the new file is removed. The folder must exist; raises OSError as the system reports it.
    """
    return _replacing(path, mode)


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """Yield an unused path that the block must create, for writers that open files themselves; see `replacing`."""
    with temporary_path(path) as partial:
        yield partial
        with partial.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)


@contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """Yield an unused, unpredictable path beside `path`; a file there is removed when the block ends.

    Its name, `.NAME.RANDOM.part`, is one that `catalog.download.sweep` clears from the models folder after a crash.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _replacing(path: Path, mode: Literal["w", "wb"]) -> Iterator[IO[Any]]:
    with temporary_path(path) as partial:
        with partial.open("x" + mode[1:], encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
