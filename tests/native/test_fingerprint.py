"""A fingerprint tells models apart that differ anywhere, without reading all of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tiny

from via_sd_local.errors import ModelError
from via_sd_local.runtime.fingerprint import Fingerprint

LLAMA = tiny.spec("llama")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "model.gguf", LLAMA)


def test_it_says_what_is_in_the_file(model: Path) -> None:
    print_ = Fingerprint.of(model)
    assert (print_.file, print_.architecture, print_.n_layer) == ("model.gguf", "llama", LLAMA.n_layer)
    assert print_.size == model.stat().st_size
    assert sum(print_.tensor_types.values()) == 9 * LLAMA.n_layer + 3
    assert len(print_.hash) == 32


def test_a_file_that_was_moved_is_the_same_model(model: Path, tmp_path: Path) -> None:
    moved = shutil.copy(model, tmp_path / "other name.gguf")
    assert Fingerprint.of(model).differences(Fingerprint.of(Path(moved))) == []


def test_one_changed_weight_or_word_of_the_metadata_is_another_model(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Fingerprint.of(model)
    changed = tmp_path / "changed.gguf"
    data = bytearray(model.read_bytes())
    data[-100] ^= 1  # in the last sample
    changed.write_bytes(data)
    (difference,) = original.differences(Fingerprint.of(changed))
    assert difference.startswith(f"other weights or metadata (hash {original.hash[:12]}, not ")
    data[-100] ^= 1
    at = data.index(b"general.name" if b"general.name" in data else b"tokenizer.ggml.model")
    data[data.index(b"llama", at)] ^= 1
    changed.write_bytes(data)
    assert original.differences(Fingerprint.of(changed))


def test_two_quantisations_of_one_model_differ_and_it_says_how(smollm2_path: Path) -> None:
    """Fault F4."""
    other = smollm2_path.with_name("smollm2-135m-q4_0.gguf")
    if not other.is_file():
        pytest.skip(f"{other.name} is not here; `via-sd-local testbed build` makes it")
    types, size = Fingerprint.of(smollm2_path).differences(Fingerprint.of(other))
    assert types == "tensors 210 q4_1, 61 f32, 1 q8_0, not 210 q4_0, 61 f32, 1 q8_0"
    assert size == f"{smollm2_path.stat().st_size} bytes, not {other.stat().st_size}"


def test_architectures_and_layers_are_told_apart(model: Path, tmp_path: Path) -> None:
    other = Fingerprint.of(tiny.write(tmp_path / "gemma.gguf", tiny.spec("gemma3")))
    mine = Fingerprint.of(model)
    differences = mine.differences(other)
    assert f"architecture {mine.architecture}, not {other.architecture}" in differences
    assert (mine.n_layer == other.n_layer) or f"{mine.n_layer} layers, not {other.n_layer}" in differences


def test_only_samples_of_the_weights_are_read(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 40 GB (sparse: it has holes) takes no longer than a small one."""
    large = Path(shutil.copy(model, tmp_path / "large.gguf"))
    with large.open("r+b") as file:
        file.truncate(40 * 10**9)
    read: list[int] = []
    original = Path.open

    class Spy:
        def __init__(self, file: object) -> None:
            self.file = file

        def __enter__(self) -> Spy:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()  # type: ignore[attr-defined]

        def read(self, n: int) -> bytes:
            read.append(n)
            return bytes(self.file.read(n))  # type: ignore[attr-defined]

        def seek(self, position: int) -> None:
            self.file.seek(position)  # type: ignore[attr-defined]

        def fileno(self) -> int:
            return int(self.file.fileno())  # type: ignore[attr-defined]

    monkeypatch.setattr(Path, "open", lambda path, *args: Spy(original(path, *args)))
    assert Fingerprint.of(large).size == 40 * 10**9
    assert sum(read) < 3 * 10**6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "this is not a GGUF file"),
        (b"no model at all", "this is not a GGUF file"),
        (b"GGUF\x03\x00\x00\x00" + b"\xff" * 16, "this is not a GGUF file"),
    ],
)
def test_what_is_no_model_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        Fingerprint.of(path)


def test_absent_files_and_folders_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.gguf", tmp_path):
        with pytest.raises(ModelError, match="cannot be read"):
            Fingerprint.of(path)
