"""The models that a chat needs and that are not on this machine yet."""

from __future__ import annotations

from ..catalog.catalog import FolderError, is_known, listing, pull, resolve
from ..errors import ModelError
from ..session.settings import Settings


def fetch_missing(settings: Settings) -> None:
    """Fetch the models that the catalogue knows and that are absent; nothing touches the network if all are here.

    Raises ModelError for what it does not know, and, with what to do, where fetching fails.
    """
    for name in filter(None, (settings.verifier, settings.draft)):
        try:
            resolve(name)
        except ModelError:
            if not is_known(name):
                raise
            try:
                pull(name)
            except FolderError:
                raise
            except ModelError as error:
                text = str(error)
                raise ModelError(text + ("\n  " if "\n" in text else ". ") + _what_to_do(name)) from None


def _what_to_do(name: str) -> str:
    here = [entry.name for entry in listing() if entry.path]
    without = f"; without one, --verifier NAME takes a model that is here: {', '.join(here)}" if here else ""
    return f"With a network, `via-sd-local models pull {name}` fetches it{without}"
