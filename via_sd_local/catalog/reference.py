"""References to GGUF files of the hub, and the choice of one file among several."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from ..errors import ModelError
from .registry import HubSource

DEFAULT_QUANT = "Q4_K_M"  # where a repository has several files and the reference names none, as in llama.cpp
FORMS = "hf:OWNER/REPO, hf:OWNER/REPO:QUANT or hf:OWNER/REPO/FILE.gguf, with @REVISION after REPO for another revision"

_REFERENCE = re.compile(
    r"hf:(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>\w[\w.-]*))?"
    r"(/(?P<file>\w[\w./-]*\.gguf)|:(?P<quant>\w[\w.-]*))?",
    re.ASCII,
)
_PART = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)
_SHOWN = 8  # names in an error


class AmbiguousError(ModelError):
    """Among some files, none or several are the one that is meant."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A repository of the hub and what is meant in it: a file, or the one of a quantisation (None: the usual one)."""

    repo: str
    revision: str
    file: str | None = None
    quant: str | None = None

    def __str__(self) -> str:
        revision = "" if self.revision == "main" else f"@{self.revision}"
        what = f"/{self.file}" if self.file else f":{self.quant}" if self.quant else ""
        return f"hf:{self.repo}{revision}{what}"

    def sources(self, names: Iterable[str]) -> list[HubSource]:
        """Return the file of the reference, all parts of it, given the names of the repository's files.

        Raises AmbiguousError, as `choose`, where they do not decide the file.
        """
        file = self.file or choose(names, self.quant, str(self))
        return [HubSource(self.repo, self.revision, part) for part in parts_of(file)]


def parse_reference(name: str) -> Reference:
    """Parse a reference in one of `FORMS`; raises ModelError for any other form."""
    match = _REFERENCE.fullmatch(name)
    if match is None:
        raise ModelError(f"{name!r} is not a hub file: write {FORMS}")
    return Reference(match["repo"], match["revision"] or "main", match["file"], match["quant"])


def parts_of(name: str) -> tuple[str, ...]:
    """Return the names of all parts of a split GGUF, given that of one; llama.cpp opens the first and finds the others.

    A file that is not split is its own only part.
    """
    match = _PART.fullmatch(name)
    if match is None:
        return (name,)
    count = int(match["count"])
    return tuple(f"{match['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1))


def choose(names: Iterable[str], quant: str | None, place: str) -> str:
    """Return the GGUF that is meant among file names; of a split one, the first part.

    With `quant`, it is the one that has this quantisation in its name; otherwise the only one, or that of
    `DEFAULT_QUANT`. Raises AmbiguousError, which calls the files' place `place`, where that is none or several.
    """
    files = {parts_of(name)[0] for name in names if name.lower().endswith(".gguf")}
    models = sorted(file for file in files if "mmproj" not in PurePosixPath(file).name.lower())
    if not models:
        raise AmbiguousError(f"{place} has no GGUF file; check the name")
    if quant is None and len(models) == 1:
        return models[0]
    wanted = re.compile(rf"(?:^|[-._/]){re.escape(quant or DEFAULT_QUANT)}(?=[-._/])", re.IGNORECASE)
    fitting = sorted((file for file in models if wanted.search(file)), key=len)
    if len(fitting) == 1 or (len(fitting) > 1 and len(fitting[0]) < len(fitting[1])):  # not its -UD or -IQ variant
        return fitting[0]
    listed = ", ".join(models[:_SHOWN]) + (f", and {len(models) - _SHOWN} more" if len(models) > _SHOWN else "")
    what = f"{len(fitting) or 'no'} {quant} files" if quant else f"{len(models)} GGUF files"
    raise AmbiguousError(f"{place} has {what}; name one of {listed}")
