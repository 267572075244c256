"""Pulls from a hub over HTTP: interrupted and continued, in parts, by quantisation, and refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hubs
import pulls
import pytest
from hubs import Hub
from huggingface_hub import constants
from pulls import CONTENT, FILE, files_in

from via_sd_local.catalog import hub_cache, lookup, puller
from via_sd_local.errors import ModelError

entry, use = pulls.entry, pulls.use


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub over HTTP, which this process and its children use, with a cache and a models folder of their own."""
    with hubs.running_hub() as running:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", running.address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", running.address + constants_path())
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        variables = {
            "HF_ENDPOINT": running.address,
            "HF_HUB_CACHE": str(tmp_path / "hub"),
            "HF_TOKEN": "",
            "HF_TOKEN_PATH": str(tmp_path / "token"),
            "VIA_SD_HOME": str(tmp_path / "home"),
            "NO_PROXY": "127.0.0.1",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        yield running


def constants_path() -> str:
    return "/{repo_id}/resolve/{revision}/{filename}"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hub" / "models--owner--toys"


CHUNK = constants.DOWNLOAD_CHUNK_SIZE  # what the hub's library writes at a time


def test_a_pull_that_is_ended_goes_on_in_another_process_where_it_was(hub: Hub, cache: Path) -> None:
    hub.files["toy.gguf"] = content = os.urandom(1 << 20) * (4 * CHUNK // (1 << 20) + 1)
    hub.stall_after = CHUNK + 1000
    command = [sys.executable, "-m", "via_sd_local", "models", "pull", "hf:owner/toys", "--quiet"]
    partial: list[int] = []

    def size() -> int:
        return sum(path.stat().st_size for path in cache.glob("blobs/*.incomplete"))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while size() < CHUNK * (len(partial) + 1) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode != 0
        partial.append(size())
    assert partial == [CHUNK, 2 * CHUNK, 3 * CHUNK]
    hub.stall_after = None
    random = next(cache.glob("blobs/*.incomplete")).with_suffix(".0123abcd.incomplete")  # of the hub's own library
    random.touch()
    os.utime(random, (0, 0))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    path = Path(done.stdout.strip())
    assert path.read_bytes() == content
    assert path == cache / "snapshots" / hubs.COMMIT / "toy.gguf"
    assert hub.ranges == [0, *partial]
    assert [file for file in files_in(cache) if "incomplete" in file] == []
    assert lookup.resolve("hf:owner/toys") == path


def test_a_model_of_the_catalogue_goes_on_where_it_was(hub: Hub, use: Callable[..., None], tmp_path: Path) -> None:
    hub.files["q4/toy.gguf"] = CONTENT
    staging = tmp_path / "home" / "models" / ".downloads"
    staging.mkdir(parents=True)
    (staging / f"{pulls.sha256(CONTENT)}.part").write_bytes(CONTENT[:2500])
    assert puller.pull("toy", progress=False).read_bytes() == CONTENT
    assert hub.ranges == [2500]
    assert files_in(tmp_path / "home" / "models") == [FILE]


def test_a_partial_file_of_another_content_is_found_out_and_dropped(hub: Hub, cache: Path) -> None:
    hub.files["toy.gguf"] = CONTENT
    (cache / "blobs").mkdir(parents=True)
    (cache / "blobs" / f"{pulls.sha256(CONTENT)}.incomplete").write_bytes(bytes(1000))
    with pytest.raises(ModelError, match=f"arrived with the SHA-256 .*, not {pulls.sha256(CONTENT)}"):
        puller.pull("hf:owner/toys/toy.gguf", progress=False)
    assert puller.pull("hf:owner/toys/toy.gguf", progress=False).read_bytes() == CONTENT


def test_a_split_model_comes_with_all_of_its_parts_whichever_is_named(hub: Hub, cache: Path) -> None:
    names = [f"q4/v-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    hub.files = {name: name.encode() for name in names}
    first = cache / "snapshots" / hubs.COMMIT / names[0]
    for name in ("hf:owner/toys", f"hf:owner/toys/{names[1]}"):
        assert puller.pull(name, progress=False) == lookup.resolve(name) == first
    assert [(first.parents[1] / name).read_bytes() for name in names] == [name.encode() for name in names]
    assert len(hub.ranges) == 3
    (model,) = hub_cache.cached_models()
    assert (str(model.reference), model.size) == (f"hf:owner/toys/{names[0]}", 3 * len(names[0]))
    (first.parents[1] / names[2]).unlink()
    with pytest.raises(ModelError, match="not in the hub cache; run `via-sd-local models pull hf:owner/toys"):
        lookup.resolve(f"hf:owner/toys/{names[0]}")
    with pytest.raises(ModelError, match=r"is one of 3 parts, and v-00003-of-00003\.gguf is absent"):
        lookup.resolve(str(first))


def test_a_quantisation_names_a_file_and_the_usual_one_is_the_default(hub: Hub) -> None:
    for quant in ("UD-Q4_K_M", "Q4_K_M", "Q8_0", "F16"):
        hub.files[f"toy-{quant}.gguf"] = quant.encode()
    hub.files["mmproj-toy-Q4_K_M.gguf"] = b"not a language model"
    assert puller.pull("hf:owner/toys:q8_0", progress=False).read_bytes() == b"Q8_0"
    assert puller.pull("hf:owner/toys:Q4_K_M", progress=False).read_bytes() == b"Q4_K_M"
    assert lookup.resolve("hf:owner/toys").read_bytes() == b"Q4_K_M"
    with pytest.raises(ModelError, match=r"toys:Q2_K has no Q2_K files; name one of toy-F16\.gguf, toy-Q4_K_M"):
        puller.pull("hf:owner/toys:Q2_K", progress=False)


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "", "owner/toys does not exist, or needs a token (401): check the name, or set HF_TOKEN to a token of "),
        (401, "GatedRepo", "owner/toys is gated (401): accept its terms at {}/owner/toys, then set HF_TOKEN to "),
        (403, "GatedRepo", "owner/toys is gated (403): accept its terms at {}/owner/toys, then set HF_TOKEN to "),
        (403, "", "your token is not permitted to read owner/toys (403); ask for access at {}/owner/toys"),
        (404, "EntryNotFound", "owner/toys has no file toy.gguf (404); {}/owner/toys/tree/main lists them"),
        (404, "RevisionNotFound", "owner/toys has no revision main (404)"),
        (404, "RepoNotFound", "owner/toys does not exist (404); check the name"),
        (429, "", "the hub has had too many requests (429): try again later, or set HF_TOKEN to "),
        (500, "", "the hub has a fault of its own (500); try again later"),
    ],
)
def test_what_the_hub_refuses_is_said_in_words_with_the_remedy(hub: Hub, status: int, code: str, words: str) -> None:
    hub.status = (status, code)
    with pytest.raises(ModelError) as caught:
        puller.pull("hf:owner/toys/toy.gguf", progress=False)
    assert words.format(hub.address) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
