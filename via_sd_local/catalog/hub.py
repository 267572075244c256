"""Looks up files of the Hugging Face hub in huggingface_hub's cache, and downloads them where it can be reached."""

import queue
import re
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

from ..errors import ModelError
from ..visible import unguarded
from .registry import HubSource

# seconds. hf_hub_download alone takes over 20 to find out that it is offline, and far more behind a silent firewall.
ANSWER_TIMEOUT = 5.0
REACH_DEADLINE = 10.0

_REFERENCE = re.compile(
    r"hf:(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>\w[\w.-]*))?/(?P<file>\w[\w./-]*\.gguf)",
    re.ASCII,
)


def parse_reference(name: str) -> HubSource:
    """Parse `hf:owner/repo[@revision]/path/file.gguf`; raises ModelError for any other form."""
    match = _REFERENCE.fullmatch(name)
    if match is None:
        raise ModelError(
            f"{name!r} is not a hub file: write hf:OWNER/REPO/FILE.gguf or hf:OWNER/REPO@REVISION/FILE.gguf"
        )
    return HubSource(match["repo"], match["revision"] or "main", match["file"])


def cached(source: HubSource) -> Path | None:
    """Return the file in huggingface_hub's cache, or None, offline; ModelError for an invalid repository name."""
    from huggingface_hub import try_to_load_from_cache

    try:
        path = try_to_load_from_cache(source.repo, source.file, revision=source.revision)
    except ValueError as error:  # the hub has rules of its own for names
        raise ModelError(f"{source.repo!r} is not a hub repository ({reason(error)}); correct the name") from error
    return Path(path) if isinstance(path, str) else None


def download(source: HubSource, folder: Path | None, *, progress: bool) -> Path:
    """Download to `folder`, or huggingface_hub's cache, resuming a partial file; raises ModelError, soon if offline."""
    import huggingface_hub
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise ModelError("skipped, since HF_HUB_OFFLINE is set")
    if problem := why_unreachable():
        raise ModelError(problem)
    try:
        with _progress_bars(progress):
            path = huggingface_hub.hf_hub_download(
                source.repo, source.file, revision=source.revision, local_dir=folder, etag_timeout=ANSWER_TIMEOUT
            )
    except Exception as error:  # see _reach
        raise ModelError(f"{source.repo}/{source.file} could not be downloaded ({reason(error)})") from error
    return Path(path)


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


def reason(error: BaseException) -> str:
    """Return an exception's text on one line of bounded length."""
    return textwrap.shorten(str(error) or type(error).__name__, 300, placeholder=" ...")


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
def _progress_bars(wanted: bool) -> Iterator[None]:
    from huggingface_hub import utils

    if wanted or utils.are_progress_bars_disabled():  # type: ignore[attr-defined]
        with redirect_stderr(unguarded(sys.stderr)):  # the bars are drawn with control characters
            yield
        return
    utils.disable_progress_bars()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        utils.enable_progress_bars()  # type: ignore[attr-defined]
