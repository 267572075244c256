"""A header says of metadata and tensors what the gguf package reads from the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFReader, GGUFWriter
from gguf.quants import quantize

from via_sd_local.errors import ModelError
from via_sd_local.runtime.gguf_header import open_header
from via_sd_local.testbed.gguf_copy import GgufFile


@pytest.fixture
def model(tmp_path: Path) -> Path:
    overrides = {"llama.some_array": [1, 2, 3], "llama.some_floats": [0.5, -2.0], "llama.some_flag": True}
    return tiny.write(tmp_path / "model.gguf", tiny.spec("llama"), overrides=overrides)


def test_metadata_are_what_the_gguf_package_reads(model: Path) -> None:
    fields = {name: field for name, field in GGUFReader(model).fields.items() if not name.startswith("GGUF.")}
    with open_header(model) as header:
        assert header.key_names() == list(fields)
        for name, field in fields.items():
            value = field.contents() if field.data else []
            assert header.value(name) == value, name
            assert type(header.value(name)) is type(value), name
        assert header.value("no.such") is None


def test_tensors_are_what_the_gguf_package_reads(model: Path) -> None:
    with open_header(model) as header:
        found = {t.name: (t.type, t.shape, t.offset, t.size) for t in header.tensors()}
    expected = {
        t.name: (int(t.tensor_type), tuple(t.shape.tolist()[::-1]), t.data_offset, t.n_bytes)
        for t in GGUFReader(model).tensors
    }
    assert found == expected
    assert list(found) == list(expected)


def test_weights_are_what_the_gguf_package_dequantises(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((6, 64), dtype=np.float32)
    path = tmp_path / "quantised.gguf"
    writer = GGUFWriter(path, "llama")
    for kind in (Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q8_0):
        writer.add_tensor(kind.name, quantize(weights, kind), raw_dtype=kind)
    writer.add_tensor("bias", weights[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GgufFile(path)
    assert file.shape("Q4_0") == (6, 64)
    assert file.shape("bias") == (64,)
    np.testing.assert_array_equal(file.floats("F32"), weights)
    np.testing.assert_array_equal(file.floats("F16"), weights.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(file.floats("bias"), weights[0])
    for name, tolerance in (("BF16", 0.02), ("Q4_0", 0.4), ("Q8_0", 0.02)):
        np.testing.assert_allclose(file.floats(name), weights, atol=tolerance)


@pytest.mark.parametrize(
    ("read", "key", "what"),
    [
        ("text", "llama.block_count", "is not a string"),
        ("number", "general.architecture", "is not an integer"),
        ("number", "llama.attention.layer_norm_rms_epsilon", "is not an integer"),
        ("numbers", "llama.some_floats", "is not an array of integers"),
        ("byte_strings", "llama.some_array", "is not an array of strings"),
        ("length", "llama.block_count", "is not an array"),
        ("number", "no.such", "its metadata have no no.such"),
    ],
)
def test_a_value_of_another_type_is_named(model: Path, read: str, key: str, what: str) -> None:
    with open_header(model) as header, pytest.raises(ModelError, match=what) as caught:
        getattr(header, read)(key)
    assert key in str(caught.value)
    assert str(model) in str(caught.value)
