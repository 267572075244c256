"""Names to files: look-up without network, pulls from faked hub and index, and what failures leave behind."""

import errno
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import platformdirs
import pytest
from huggingface_hub import constants

from via_sd_local import catalog, download, hub, registry
from via_sd_local.errors import ModelError

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
        assert options["stdout"] in (2, subprocess.DEVNULL)  # never the caller's standard output
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
def use(entry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the registry hold the model `toy` with the given sources."""

    def write(*sources: dict[str, Any]) -> None:
        path = tmp_path / "registry.json"
        path.write_text(json.dumps({"default": "toy", "models": {"toy": entry | {"sources": sources}}}))
        monkeypatch.setattr(registry, "REGISTRY_PATHS", (tmp_path / "absent.json", path))

    write(HUB)
    return write


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

    def hf_hub_download(repo: str, file: str, *, revision: str, local_dir: Path | None, etag_timeout: float) -> str:
        asked.append((repo, revision, file))
        path = (local_dir or Path(constants.HF_HUB_CACHE)) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return str(path)

    monkeypatch.setattr(hub, "_reach", lambda endpoint: "")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)
    return asked


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# the registry


def test_the_registry_that_ships_is_valid_and_names_its_default() -> None:
    shipped = registry.load()
    assert shipped.default == catalog.default_name() == "smollm2-135m"
    assert list(shipped.models) == ["smollm2-135m", "gemma-3-270m"]
    for model in shipped.models.values():
        kinds = [type(source) for source in model.sources]
        assert kinds == [registry.HubSource, registry.WheelSource]
    assert [len(model.sources[1].wheels) for model in shipped.models.values()] == [1, 4]
    members = [wheel.member[-6:] for wheel in shipped.models["gemma-3-270m"].sources[1].wheels]
    assert members == ["part00", "part01", "part02", "part03"]


def test_the_registry_is_looked_for_in_the_package_before_the_checkout() -> None:
    package = Path(registry.__file__).parent
    assert (
        package / "models" / "registry.json",
        package.parent / "models" / "registry.json",
    ) == registry.REGISTRY_PATHS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha256": "B" * 64}, "models.toy.sha256 is 'BBBB"),
        ({"sha256": "b" * 63}, "models.toy.sha256"),
        ({"size": -1}, "models.toy.size is -1, not a number of bytes"),
        ({"size": True}, "models.toy.size is True"),
        ({"file": "../toy.gguf"}, "models.toy.file is '../toy.gguf'"),
        ({"license": None}, "models.toy.license is None"),
        ({"licence": "x"}, "models.toy.licence is 'x', not known"),
        ({"sources": []}, "models.toy.sources is"),
        ({"sources": [HUB | {"kind": "ftp"}]}, r"models.toy.sources\[0\].kind is 'ftp', not hub or wheels"),
        ({"sources": [HUB | {"repo": "owner"}]}, r"sources\[0\].repo is 'owner'"),
        ({"sources": [HUB | {"wheels": []}]}, r"sources\[0\].wheels is \[\], not known"),
        ({"sources": [{"kind": "wheels", "wheels": [{"distribution": "a b"}]}]}, r"wheels\[0\].distribution is 'a b'"),
    ],
)
def test_a_wrong_registry_entry_is_named_with_its_value(
    entry: dict[str, Any], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "registry.json"
    path.write_text(json.dumps({"default": "toy", "models": {"toy": entry | {"sources": [HUB]} | change}}))
    with pytest.raises(ModelError, match=message):
        registry.load(path)


def test_a_default_or_a_file_name_that_does_not_fit_is_refused(entry: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "registry.json"
    toy = entry | {"sources": [HUB]}
    path.write_text(json.dumps({"default": "toys", "models": {"toy": toy}}))
    with pytest.raises(ModelError, match="default is 'toys', not one of toy"):
        registry.load(path)
    path.write_text(json.dumps({"default": "a", "models": {"a": toy, "b": toy}}))
    with pytest.raises(ModelError, match=r"models.a.file is 'toy.gguf'"):
        registry.load(path)
    path.write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        registry.load(path)


def test_a_made_model_is_checked_like_the_others(entry: dict[str, Any], tmp_path: Path) -> None:
    made = {"description": "x", "license": "y", "file": "made.gguf", "size": 1, "command": "make it"}
    toy = entry | {"sources": [HUB]}
    path = tmp_path / "registry.json"

    def load(**entries: Any) -> registry.Registry:
        path.write_text(json.dumps({"default": "toy", "models": {"toy": toy}, "made": entries}))
        return registry.load(path)

    assert load(other=made).made == {"other": registry.MadeModel("other", "x", "y", "made.gguf", 1, "make it")}
    for entries, message in (
        ({"other": made | {"file": FILE}}, "file is 'toy.gguf', not a file name that no other"),
        ({"toy": made}, "made is 'toy', not a name that no other model has"),
        ({"other": made | {"sources": []}}, r"made.other.sources is \[\], not known"),
        ({"other": made | {"command": ""}}, "made.other.command is ''"),
    ):
        with pytest.raises(ModelError, match=message):
            load(**entries)


def test_no_registry_at_all_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTRY_PATHS", (tmp_path / "a", tmp_path / "b"))
    with pytest.raises(ModelError, match=f"{tmp_path / 'a'} or {tmp_path / 'b'}"):
        registry.load()


# look-up


def test_the_models_folder_follows_the_variable_and_else_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIA_SD_HOME", "~/models-here")
    assert catalog.models_folder() == Path.home() / "models-here" / "models"
    monkeypatch.setenv("VIA_SD_HOME", "")
    assert catalog.models_folder() == platformdirs.user_cache_path("via-sd-local", appauthor=False) / "models"


def test_an_existing_path_resolves_to_itself(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "any file"
    path.write_bytes(b"x")
    assert catalog.resolve(str(path)) == path
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert catalog.resolve("~/any file") == path


def test_a_registry_name_resolves_to_its_whole_file(models: Path, use: Callable[..., None]) -> None:
    with pytest.raises(ModelError, match=r"toy is not on this machine .*`via-sd-local models pull toy`"):
        catalog.resolve("toy")
    models.mkdir(parents=True)
    (models / FILE).write_bytes(CONTENT[:-1])
    with pytest.raises(ModelError, match="has 5999 bytes, and toy has 6000; run `via-sd-local models pull toy`"):
        catalog.resolve("toy")
    (models / FILE).write_bytes(CONTENT)
    assert catalog.resolve("toy") == models / FILE


def test_a_file_put_into_the_models_folder_resolves_by_its_file_name(models: Path, use: Callable[..., None]) -> None:
    models.mkdir(parents=True)
    (models / "mine.gguf").write_bytes(b"x")
    assert catalog.resolve("mine.gguf") == models / "mine.gguf"


def test_a_hub_reference_resolves_from_the_hub_cache(models: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"not in the hub cache; run `via-sd-local models pull hf:owner/toys/q4/toy.gguf`"
    ):
        catalog.resolve("hf:owner/toys/q4/toy.gguf")
    on_main = put_in_hub_cache(tmp_path / "hub")
    on_other = put_in_hub_cache(tmp_path / "hub", revision="b" * 40, branch="v2.0")
    assert catalog.resolve("hf:owner/toys/q4/toy.gguf") == on_main
    assert catalog.resolve("hf:owner/toys@v2.0/q4/toy.gguf") == on_other
    assert catalog.resolve(f"hf:owner/toys@{'b' * 40}/q4/toy.gguf") == on_other


@pytest.mark.parametrize("name", ["hf:toy.gguf", "hf:owner/toys", "hf:owner/toys/toy.bin", "hf:owner/toys@/toy.gguf"])
def test_a_malformed_hub_reference_shows_the_form(models: Path, name: str) -> None:
    with pytest.raises(ModelError, match=r"is not a hub file: write hf:OWNER/REPO/FILE.gguf"):
        catalog.resolve(name)


def test_a_repository_name_that_the_hub_forbids_is_a_model_error(models: Path) -> None:
    with pytest.raises(ModelError, match="'owner/a--b' is not a hub repository"):
        catalog.resolve("hf:owner/a--b/toy.gguf")


def test_an_unknown_name_is_told_the_known_ones_and_the_closest(models: Path) -> None:
    with pytest.raises(ModelError) as caught:
        catalog.resolve("smolm2-135m")
    assert str(caught.value) == (
        "no model is called 'smolm2-135m'; did you mean smollm2-135m? known are smollm2-135m, gemma-3-270m, "
        "smollm2-135m-q4_0, or give a path or hf:OWNER/REPO/FILE.gguf"
    )
    with pytest.raises(ModelError, match="no model is called 'zzz'; known are"):
        catalog.pull("zzz")


@pytest.mark.parametrize("name", ["absent.gguf", "./absent", "~/absent", "some/absent"])
def test_what_looks_like_a_path_is_said_not_to_exist(models: Path, name: str) -> None:
    with pytest.raises(ModelError, match=f"^{name} does not exist; check the path$"):
        catalog.resolve(name)


def test_a_folder_and_impossible_paths_are_model_errors(models: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder, not a GGUF file"):
        catalog.resolve(str(tmp_path))
    for name in ("", "x" * 5000, "a\0b", "~nobody-of-this-name/x"):
        with pytest.raises(ModelError):
            catalog.resolve(name)


def test_the_listing_has_absent_present_and_own_files(models: Path, use: Callable[..., None]) -> None:
    absent = catalog.CatalogEntry("toy", "A toy", "CC0-1.0", 6000, None)
    assert catalog.listing() == [absent]
    models.mkdir(parents=True)
    (models / FILE).write_bytes(CONTENT[:-1])
    (models / "mine.gguf").write_bytes(b"four")
    (models / ".toy.gguf.1-2.part").write_bytes(b"partial")
    own = catalog.CatalogEntry("mine.gguf", "not in the registry", "unknown", 4, models / "mine.gguf")
    assert catalog.listing() == [absent, own]
    (models / FILE).write_bytes(CONTENT)
    assert catalog.listing()[0].path == models / FILE


# pulls


def test_a_pull_joins_the_wheels_in_order_and_removes_them(models: Path, index: Index) -> None:
    assert catalog.pull("toy", progress=False) == models / FILE
    assert (models / FILE).read_bytes() == CONTENT
    assert index.asked == ["toy-part0", "toy-part1", "toy-part2"]
    assert files_in(models) == [FILE]


def test_real_pip_accepts_the_command_and_checks_the_hash(
    models: Path, index: Index, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index.folder), "PIP_CONFIG_FILE": os.devnull}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    models.mkdir(parents=True)
    wheel = registry.WheelPart(**index.wheels[0])
    target = models / "kept.whl"
    download._download_wheel(wheel, target, progress=False)
    assert sha256(target.read_bytes()) == wheel.sha256
    index.wheel(0, b"tampered with")
    with pytest.raises(ModelError, match=r"toy-part0==1\.0 failed \(.*DO NOT MATCH THE HASHES"):
        download._download_wheel(wheel, models / "other.whl", progress=False)
    assert files_in(models) == ["kept.whl"]


def test_a_file_that_is_there_is_not_pulled_again_unless_it_fails_verification(models: Path, index: Index) -> None:
    models.mkdir(parents=True)
    bad = bytes(len(CONTENT))
    (models / FILE).write_bytes(bad)
    catalog.pull("toy", progress=False)
    assert (models / FILE).read_bytes() == bad
    assert index.asked == []
    catalog.pull("toy", progress=False, verify=True)
    assert (models / FILE).read_bytes() == CONTENT
    index.asked.clear()
    catalog.pull("toy", progress=False, verify=True)
    assert index.asked == []


def test_a_file_of_the_wrong_size_is_pulled_again(models: Path, index: Index) -> None:
    models.mkdir(parents=True)
    (models / FILE).write_bytes(CONTENT[:-1])
    assert catalog.pull("toy", progress=False).read_bytes() == CONTENT


def test_a_wrong_hash_names_both_and_leaves_nothing(
    models: Path, index: Index, entry: dict[str, Any], use: Callable[..., None]
) -> None:
    entry["sha256"] = "0" * 64
    use({"kind": "wheels", "wheels": index.wheels})
    with pytest.raises(ModelError, match=f"{sha256(CONTENT)}, not {'0' * 64}"):
        catalog.pull("toy", progress=False)
    assert files_in(models) == []


def test_a_wheel_of_the_wrong_hash_is_not_kept(models: Path, index: Index) -> None:
    index.wheel(1, b"tampered with")
    with pytest.raises(ModelError, match=r"toy-part1==1\.0 failed \(THESE PACKAGES DO NOT MATCH"):
        catalog.pull("toy", progress=False)
    assert files_in(models) == [f".downloads/{index.wheels[0]['sha256']}.whl"]


def test_a_wheel_without_the_member_is_a_model_error(models: Path, index: Index, use: Callable[..., None]) -> None:
    use({"kind": "wheels", "wheels": [*index.wheels[:2], index.wheels[2] | {"member": "other"}]})
    with pytest.raises(ModelError, match="toy-part2 lacks other"):
        catalog.pull("toy", progress=False)
    assert files_in(models) == []


def test_an_interrupted_pull_keeps_the_whole_wheels_and_goes_on_with_the_rest(models: Path, index: Index) -> None:
    def interrupt(distribution: str) -> None:
        if distribution == "toy-part2":
            raise KeyboardInterrupt

    index.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        catalog.pull("toy", progress=False)
    kept = [models / ".downloads" / f"{wheel['sha256']}.whl" for wheel in index.wheels[:2]]
    assert files_in(models) == sorted(str(path.relative_to(models)) for path in kept)
    kept[1].write_bytes(kept[1].read_bytes()[:-1])  # and one that a crash cut short does not count as whole
    index.before = lambda distribution: None
    index.asked.clear()
    assert catalog.pull("toy", progress=False).read_bytes() == CONTENT
    assert index.asked == ["toy-part1", "toy-part2"]


def test_the_final_name_appears_only_with_the_whole_checked_file(
    models: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    members = download._members

    def watched(*args: Any) -> Any:
        for chunk in members(*args):
            seen.append([path.name for path in models.glob("*.gguf")])
            yield chunk

    monkeypatch.setattr(download, "_members", watched)
    fsync = os.fsync
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda fd: (fsync(fd), synced.append((models / FILE).exists())))
    catalog.pull("toy", progress=False)
    assert seen == [[], [], []]
    assert synced == [False]


def test_two_pulls_at_once_both_end_with_the_whole_file(
    models: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2, timeout=10)
    index.before = lambda distribution: together.wait() and None
    replace = os.replace

    def replace_together(source: Path, destination: Path) -> None:
        if destination == models / FILE:
            together.wait()  # so each has written a part file of its own before either is renamed
        replace(source, destination)

    monkeypatch.setattr(os, "replace", replace_together)
    results: list[bytes] = []
    pulls = [
        threading.Thread(target=lambda: results.append(catalog.pull("toy", progress=False).read_bytes()))
        for _ in range(2)
    ]
    for thread in pulls:
        thread.start()
    for thread in pulls:
        thread.join()
    assert results == [CONTENT, CONTENT]
    assert files_in(models) == [FILE]


def test_a_pull_that_fails_since_another_has_finished_returns_its_file(models: Path, index: Index) -> None:
    def finish(distribution: str) -> None:
        (models / FILE).write_bytes(CONTENT)
        raise FileNotFoundError(errno.ENOENT, "cleared away")

    index.before = finish
    assert catalog.pull("toy", progress=False) == models / FILE


def test_a_full_disk_is_found_before_the_download_and_during_it(
    models: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [5999]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free[0]))
    with pytest.raises(ModelError, match=r"6000 bytes are needed in .* has 5999 free; free some, or set VIA_SD_HOME"):
        catalog.pull("toy", progress=False)
    free[0] = 6000  # enough for the file, yet not for the wheels as well
    sizes = [wheel["size"] for wheel in index.wheels]
    with pytest.raises(ModelError, match=f"{6000 + sum(sizes) + max(sizes)} bytes are needed"):
        catalog.pull("toy", progress=False)
    assert index.asked == []
    free[0] = 10**9

    def full(descriptor: int) -> None:
        free[0] = 7
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelError, match=r"6000 bytes are needed in .* has 7 free"):
        catalog.pull("toy", progress=False)
    assert files_in(models) == sorted(f".downloads/{wheel['sha256']}.whl" for wheel in index.wheels)


def test_the_hub_is_asked_only_where_its_copy_fits_as_well(
    models: Path, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = hub_works(monkeypatch)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=11999))
    with pytest.raises(ModelError, match="12000 bytes are needed"):
        catalog.pull("toy", progress=False)
    assert asked == []


def test_a_models_folder_that_cannot_be_made_is_a_model_error(models: Path, index: Index) -> None:
    models.parent.write_text("a file where the folder should be")
    with pytest.raises(ModelError, match=r"cannot be written .*; set VIA_SD_HOME elsewhere"):
        catalog.pull("toy", progress=False)


def test_without_pip_the_remedy_is_named(models: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="has no pip to download toy-part0 with; run it with -m ensurepip"):
        catalog.pull("toy", progress=False)


def test_old_leftovers_of_killed_pulls_are_removed_and_young_ones_are_not(models: Path, index: Index) -> None:
    staging = models / ".downloads"
    (staging / "pip-old").mkdir(parents=True)
    (staging / "pip-young").mkdir()
    long_ago = time.time() - 2 * download.LEFTOVERS_AGE
    for name in ("old", "young"):
        (models / f".toy.gguf.1-{name}.part").write_bytes(b"x")
    for path in (staging / "pip-old", models / ".toy.gguf.1-old.part"):
        os.utime(path, (long_ago, long_ago))
    catalog.pull("toy", progress=False)
    assert files_in(models) == [".toy.gguf.1-young.part", FILE]
    assert [path.name for path in staging.iterdir()] == ["pip-young"]


# the hub


def test_the_hub_comes_first_and_nothing_stays_in_staging(
    models: Path, index: Index, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(HUB, {"kind": "wheels", "wheels": index.wheels})
    asked = hub_works(monkeypatch)
    assert catalog.pull("toy", progress=False).read_bytes() == CONTENT
    assert not Path(constants.HF_HUB_CACHE).exists()  # one copy, in the models folder
    assert asked == [("owner/toys", "main", "q4/toy.gguf")]
    assert index.asked == []
    assert files_in(models) == [FILE]


def test_a_wrong_file_from_the_hub_is_dropped_and_the_index_is_next(
    models: Path, index: Index, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(HUB, {"kind": "wheels", "wheels": index.wheels})
    hub_works(monkeypatch, b"not the model")
    assert catalog.pull("toy", progress=False).read_bytes() == CONTENT
    assert files_in(models) == [FILE]


def test_a_file_in_the_hub_cache_is_used_without_the_hub(
    models: Path, use: Callable[..., None], tmp_path: Path
) -> None:
    put_in_hub_cache(tmp_path / "hub")
    assert catalog.pull("toy", progress=False).read_bytes() == CONTENT


def test_the_offline_variable_skips_the_hub_with_a_note_and_leaves_the_index(
    models: Path,
    index: Index,
    use: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use(HUB, {"kind": "wheels", "wheels": index.wheels})
    asked = hub_works(monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert catalog.pull("toy").read_bytes() == CONTENT
    assert asked == []
    out, err = capsys.readouterr()
    assert out == ""
    assert "hub owner/toys: skipped, since HF_HUB_OFFLINE is set; trying the next source" in err
    assert "license CC0-1.0" in err


def test_when_all_sources_fail_each_has_a_line_and_the_remedy_ends(
    models: Path, index: Index, use: Callable[..., None]
) -> None:
    use(HUB, {"kind": "wheels", "wheels": index.wheels})
    index.wheel(0, b"tampered with")
    with pytest.raises(ModelError) as caught:
        catalog.pull("toy", progress=False)
    lines = str(caught.value).splitlines()
    assert lines[0] == "toy could not be pulled:"
    assert lines[1] == f"  hub owner/toys: {constants.ENDPOINT} cannot be reached (unplugged)"
    assert lines[2].startswith("  package index: pip download toy-part0==1.0 failed")
    assert lines[3].endswith(f"HF_ENDPOINT, or put the file there by hand: {models / FILE}")
    assert len(lines) == 4


def test_a_quiet_pull_prints_nothing(models: Path, index: Index, capfd: pytest.CaptureFixture[str]) -> None:
    catalog.pull("toy", progress=False)
    assert capfd.readouterr() == ("", "")


def test_a_hub_reference_is_pulled_into_the_hub_cache(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "hf:owner/toys@v1/q4/toy.gguf"
    with pytest.raises(ModelError, match=rf"{name}: .* cannot be reached \(unplugged\); name a mirror in HF_ENDPOINT"):
        catalog.pull(name, progress=False)
    asked = hub_works(monkeypatch)
    assert catalog.pull(name, progress=False) == tmp_path / "hub" / "q4" / "toy.gguf"
    assert asked == [("owner/toys", "v1", "q4/toy.gguf")]
    with pytest.raises(ValueError, match="verify=True cannot be used with 'hf:"):
        catalog.pull(name, verify=True)


def test_a_hub_that_never_answers_costs_no_more_than_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = threading.Event()
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: SimpleNamespace(head=lambda *a, **k: hang.wait()))
    monkeypatch.setattr(hub, "REACH_DEADLINE", 0.05)
    start = time.monotonic()
    assert hub._reach("https://hub.invalid") == "no answer within 0 seconds"
    assert time.monotonic() - start < 1
    hang.set()


def test_any_answer_of_the_hub_counts_and_an_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no network" in hub._reach("https://hub.invalid")
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: SimpleNamespace(head=lambda *a, **k: 404))
    assert hub._reach("https://hub.invalid") == ""


def test_the_hubs_bars_are_off_in_a_quiet_download_and_on_again_after() -> None:
    from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars

    enable_progress_bars()
    before = are_progress_bars_disabled()
    assert not before
    with hub._progress_bars(False):
        assert are_progress_bars_disabled()
    assert are_progress_bars_disabled() == before
    with hub._progress_bars(True):
        assert are_progress_bars_disabled() == before


def test_a_broken_connection_is_told_before_pips_own_conclusion() -> None:
    output = (
        "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(x)': /simple/toy/\n"
        "ERROR: Could not find a version that satisfies the requirement toy==1.0\n"
    )
    assert download._pip_reason(output).startswith("'NewConnectionError(x)': /simple/toy/: Could not find a version")


def test_the_catalog_loads_no_native_library() -> None:
    code = "import sys, via_sd_local.catalog; sys.exit('llama_cpp' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
