"""Downloads the models that a command needs and that are not on this machine yet."""

from __future__ import annotations

from ..errors import ModelError
from .inventory import listing
from .lookup import is_known, resolve
from .puller import PullError, pull


def fetch_missing(*names: str | None, progress: bool = True) -> None:
    """Download those models that are absent; None stands for no model. Without absent models no network is used.

    Raises ModelError for a model that is not in the catalogue, and, with a remedy, for a download that fails.
    """
    for name in filter(None, names):
        try:
            resolve(name)
        except ModelError:
            if not is_known(name):
                raise
            try:
                pull(name, progress=progress)
            except PullError as error:
                raise ModelError(f"{error.problem}. Try again, or {_what_to_do() or error.remedy}") from None


def _what_to_do() -> str:
    here = [entry.name for entry in listing() if entry.path][:5]
    return f"take a model that is here with --verifier: {', '.join(here)}" if here else ""
