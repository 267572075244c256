"""Downloads the models that a chat needs and that are not on this machine yet."""

from __future__ import annotations

from ..catalog.inventory import listing
from ..catalog.lookup import is_known, resolve
from ..catalog.puller import FolderError, pull
from ..errors import ModelError
from ..session.settings import Settings


def fetch_missing(settings: Settings) -> None:
    """Download those models of the settings that are absent; without absent models the network is not used.

    Raises ModelError for a model that is not in the catalogue, and, with a remedy, for a download that fails.
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
