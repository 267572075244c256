"""The Hugging Face hub: its cache on this machine, whether it can be reached, and its errors in words."""

from __future__ import annotations

import queue
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ModelError
from .registry import HubSource

# seconds. hf_hub_download alone takes over 20 to find out that it is offline, and far more behind a silent firewall.
ANSWER_TIMEOUT = 5.0
REACH_DEADLINE = 10.0
REASON_WIDTH = 100  # characters of another program's reason that are quoted


def cached(source: HubSource) -> Path | None:
    """Return the file in huggingface_hub's cache, or None, offline; ModelError for an invalid repository name."""
    from huggingface_hub import try_to_load_from_cache

    try:
        path = try_to_load_from_cache(source.repo, source.file, revision=source.revision)
    except ValueError as error:  # the hub has rules of its own for names
        raise ModelError(f"{source.repo!r} is not a hub repository ({reason(error)}); correct the name") from error
    return Path(path) if isinstance(path, str) else None


def reason(error: BaseException) -> str:
    """Return an exception's text on one line of bounded length."""
    return textwrap.shorten(str(error) or type(error).__name__, REASON_WIDTH, placeholder=" …")


def problem_with(source: HubSource, error: Exception) -> str:
    """Return in words, with the remedy, why the hub does not give a file."""
    from huggingface_hub import constants, get_token

    page = f"{constants.ENDPOINT}/{source.repo}"
    kinds = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403) and "GatedRepoError" in kinds:
        return f"{source.repo} is gated ({status}): accept its terms at {page}, then {_with_a_token()}"
    if status == 401:
        if get_token():
            return f"the hub does not accept your token ({status}) for {source.repo}; {_with_a_token()}"
        return f"{source.repo} does not exist, or needs a token ({status}): check the name, or {_with_a_token()}"
    if status == 403:
        return f"your token is not permitted to read {source.repo} ({status}); ask for access at {page}"
    if status == 404 and "RevisionNotFoundError" in kinds:
        return f"{source.repo} has no revision {source.revision} ({status}); {page} lists them"
    if status == 404 and "RepositoryNotFoundError" not in kinds:
        return f"{source.repo} has no file {source.file} ({status}); {page}/tree/{source.revision} lists them"
    if status == 404:
        return f"{source.repo} does not exist ({status}); check the name"
    if status == 429:
        return f"the hub has had too many requests ({status}): try again later, or {_with_a_token()}"
    if status is not None and status >= 500:
        return f"the hub has a fault of its own ({status}); try again later"
    return f"{source.repo}/{source.file} could not be downloaded ({reason(error)})"


def _with_a_token() -> str:
    return "set HF_TOKEN to a token of https://huggingface.co/settings/tokens, or run `hf auth login`"


def require_answer() -> None:
    """Raise ModelError, soon, where the hub gives no HTTP answer or HF_HUB_OFFLINE is set."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise ModelError("skipped, since HF_HUB_OFFLINE is set")
    if problem := why_unreachable():
        raise ModelError(f"{problem}; HF_ENDPOINT names a mirror")


def files_of(repo: str, cache: Path | None = None) -> Path | None:
    """Return the folder in huggingface_hub's cache with what was fetched of a repository; None if there is nothing.

    `cache` is another cache than the user's own. Needs no network; ModelError for an invalid repository name.
    """
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(huggingface_hub.snapshot_download(repo, cache_dir=cache, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    except ValueError as error:
        raise ModelError(f"{repo!r} is not a hub repository ({reason(error)}); correct the name") from error


def why_unreachable() -> str | None:
    """Return why the hub gives no answer within 10 seconds, or None if it answers, whatever the status."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    problem = _reach(constants.ENDPOINT)
    return f"{constants.ENDPOINT} cannot be reached ({problem})" if problem else None


def _reach(endpoint: str) -> str:
    """Return why `endpoint` gives no HTTP answer within the deadline; empty if it answers, whatever the status."""
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    answers: queue.Queue[str] = queue.Queue()

    def ask() -> None:
        try:
            get_session().head(endpoint, timeout=ANSWER_TIMEOUT)
            answers.put("")
        except Exception as error:  # the hub library's HTTP library, so its errors, differ between its versions 0 and 1
            answers.put(reason(error))

    # a thread, since the timeout covers neither the look-up of the name nor all the addresses together
    threading.Thread(target=ask, daemon=True).start()
    try:
        return answers.get(timeout=REACH_DEADLINE)
    except queue.Empty:
        return f"no answer within {REACH_DEADLINE:.0f} seconds"


@contextmanager
def progress_bars(wanted: bool) -> Iterator[None]:
    """Hide the hub library's progress bars in the block, unless they are `wanted`."""
    from huggingface_hub import utils

    if wanted or utils.are_progress_bars_disabled():  # type: ignore[attr-defined]
        yield
        return
    utils.disable_progress_bars()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        utils.enable_progress_bars()  # type: ignore[attr-defined]
