"""The testbed keeps the source's function, and its copies are where and what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import testbeds
import tiny
from testbeds import SAME, Build

from via_sd_local.binding import llama
from via_sd_local.mask import LayerMask
from via_sd_local.runtime.model import Model
from via_sd_local.testbed import build as testbed_build
from via_sd_local.testbed import recipe as testbed
from via_sd_local.testbed.gguf_copy import GgufFile
from via_sd_local.testbed.recipe import Dims, stack
from via_sd_local.tiers.verifier import Verifier

build = testbeds.build
exact_attention = testbeds.exact_attention
logits = testbeds.logits
models = testbeds.models
source = testbeds.source


# width


@pytest.mark.parametrize("wide", [(96, 96, 2), (64, 160, 2), (64, 96, 5), (160, 224, 3)], ids=str)
def test_a_wider_model_computes_the_same(
    build: Build, logits: Callable[..., np.ndarray], source: Path, exact_attention: None, wide: tuple[int, int, int]
) -> None:
    """To the rounding of float32 sums: 1.2e-5 of logits of ±8 was seen."""
    embed, ffn, kv_heads = map(str, wide)
    made = build("--embed", embed, "--ffn", ffn, "--kv-heads", kv_heads, "--copies", "0", "--quant", "F32")
    expected, found = logits(source), logits(made["verifier"])
    assert np.abs(expected).max() > 5
    assert np.abs(found - expected).max() < 5e-5


def test_a_wider_float16_model_computes_the_same(
    build: Build, logits: Callable[..., np.ndarray], tmp_path: Path
) -> None:
    """To float16's rounding of activations and the KV cache: 0.013 of ±8 was seen.

    At 4 times the width the norms' factor is a power of two, and not a bit changes.
    """
    half = tiny.write(tmp_path / "half.gguf", tiny.spec("llama", dtype="F16"))
    for embed, bound in (("96", 0.04), ("256", 0.0)):
        made = build("--source", str(half), "--embed", embed, "--ffn", "160", "--kv-heads", "4", "--copies", "0",
                     "--quant", "F16")  # fmt: skip
        assert np.abs(logits(made["verifier"]) - logits(half)).max() <= bound


def test_biases_tied_embeddings_and_rope_factors_are_kept(
    build: Build, logits: Callable[..., np.ndarray], tmp_path: Path, exact_attention: None
) -> None:
    spec = tiny.spec("llama")
    rng = np.random.default_rng(5)
    tensors = tiny.random_tensors(spec)
    del tensors["output.weight"]
    tensors["token_embd.weight"] /= 4  # else every token predicts itself
    tensors["rope_freqs.weight"] = rng.uniform(1, 4, 8).astype(np.float32)
    for il in range(spec.n_layer):
        for name, n in (("attn_q", 64), ("attn_k", 32), ("attn_v", 32), ("attn_output", 64), ("ffn_gate", 96),
                        ("ffn_up", 96), ("ffn_down", 64)):  # fmt: skip
            tensors[f"blk.{il}.{name}.bias"] = rng.standard_normal(n, dtype=np.float32) / 2
    path = tiny.write(tmp_path / "odd.gguf", spec, tensors)
    made = build("--source", str(path), "--embed", "160", "--ffn", "128", "--kv-heads", "3", "--copies", "3",
                 "--scale", "0", "--quant", "F32")  # fmt: skip
    assert np.abs(logits(made["verifier"]) - logits(path)).max() < 5e-5
    assert "output.weight" not in GgufFile(Path(made["verifier"])).names


def test_metadata_and_vocabulary_are_kept(build: Build, source: Path) -> None:
    made = build("--embed", "128", "--ffn", "160", "--kv-heads", "4", "--copies", "3", "--quant", "Q8_0")
    old, new = GgufFile(source).metadata(), GgufFile(Path(made["verifier"])).metadata()
    changed = {key for key in old if key not in new or new[key] != old[key]}
    assert changed == {
        *(f"llama.{key}" for key in ("embedding_length", "feed_forward_length", "block_count")),
        *(f"llama.attention.{key}" for key in ("head_count", "head_count_kv", "layer_norm_rms_epsilon")),
        "general.name",
    }
    assert new["llama.attention.head_count"].value == 8
    epsilon = "llama.attention.layer_norm_rms_epsilon"
    assert new[epsilon].value == pytest.approx(old[epsilon].value * 64 / 128)
    recipe = json.loads(new["via_sd.testbed.recipe"].value)
    assert recipe["source"] == "toy.gguf"
    assert (recipe["embed"], recipe["copies"], recipe["quant"]) == (128, 3, "Q8_0")
    assert new["general.file_type"].value == llama.LLAMA_FTYPE_MOSTLY_Q8_0


# depth


def test_copies_scaled_by_nothing_change_not_a_bit(
    build: Build, logits: Callable[..., np.ndarray], source: Path
) -> None:
    made = build(*SAME, "--copies", "4", "--scale", "0", "--quant", "F32")
    np.testing.assert_array_equal(logits(made["verifier"]), logits(source))


@pytest.mark.parametrize("place", [["--copies-from", "0.5"], ["--spread"]], ids=" ".join)
def test_the_printed_mask_leaves_exactly_the_source(
    build: Build, logits: Callable[..., np.ndarray], source: Path, place: list[str]
) -> None:
    made = build(*SAME, "--copies", "4", "--scale", "0.3", "--quant", "F32", *place)
    expected = logits(source)
    assert np.abs(logits(made["verifier"]) - expected).max() > 0.1
    np.testing.assert_array_equal(logits(made["verifier"], made["mask"]), expected)
    assert str(testbed_build.read_mask(Path(made["verifier"]))) == made["mask"]


def test_a_copy_is_its_layer_with_scaled_outputs(build: Build) -> None:
    made = build(*SAME, "--copies", "2", "--scale", "0.25", "--quant", "F32", "--copies-from", "0.5")
    file = GgufFile(Path(made["verifier"]))
    originals = file.get("via_sd.testbed.originals")
    copies = file.get("via_sd.testbed.copies")
    assert len(copies) == 2
    for copy in copies:
        real = originals.index(originals[copy])
        assert real not in copies
        for role in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up",
                     "ffn_down"):  # fmt: skip
            times = 0.25 if role in ("attn_output", "ffn_down") else 1
            found, expected = (file.floats(f"blk.{il}.{role}.weight") for il in (copy, real))
            np.testing.assert_array_equal(found, expected * times, err_msg=role)


@pytest.mark.parametrize("copies", [0, 1, 7, 18, 24, 60])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
def test_copies_lie_after_the_contiguous_layers_and_before_the_last(copies: int, share: float) -> None:
    layers = stack(30, copies, share)
    assert [layer.original for layer in layers if not layer.is_copy] == list(range(30))
    places = [il for il, layer in enumerate(layers) if layer.is_copy]
    assert len(places) == copies
    assert not layers[-1].is_copy
    assert all(il >= max(1, 30 * share) for il in places)
    assert all(layers[il].original == layers[il - 1].original for il in places)
    gaps = [
        sum(layer == testbed.Layer(il, True) for layer in layers) for il in range(max(1, round(30 * share)) - 1, 29)
    ]
    assert max(gaps) - min(gaps) <= 1  # evenly


def test_the_default_copies_begin_after_twelve_layers() -> None:
    mask = testbed.copies_mask(stack(30, 24, 0.4))
    assert (mask.first, len(mask), mask.n_layer) == (12, 48, 54)
    assert testbed.copies_mask(stack(30, 24, 0.0)).first == 1


def test_resume_has_the_layers_below_the_first_copy_to_reuse(build: Build, keep: Callable[[Any], Any]) -> None:
    made = build(*SAME, "--copies", "3", "--scale", "0.1", "--quant", "F16", "--copies-from", "0.5")
    model = keep(Model(made["verifier"]))
    verifier = keep(Verifier(model, n_ctx=64, mask=LayerMask.parse(made["mask"], model.n_layer), n_threads=1))
    assert verifier.mask.first == 3


def test_a_source_that_does_not_write_its_head_size_keeps_it(
    build: Build, logits: Callable[..., np.ndarray], tmp_path: Path, exact_attention: None
) -> None:
    """The testbed must write it, as it is no longer embed / heads."""
    absent = dict.fromkeys(("attention.key_length", "attention.value_length", "rope.dimension_count"))
    overrides = {f"llama.{key}": value for key, value in absent.items()}
    path = tiny.write(tmp_path / "old.gguf", tiny.spec("llama"), overrides=overrides)
    assert testbed_build.read_dims(GgufFile(path)) == Dims(6, 64, 96, 4, 2, 16)
    made = build("--source", str(path), "--embed", "160", "--ffn", "96", "--kv-heads", "3", "--copies", "0",
                 "--quant", "F32")  # fmt: skip
    assert np.abs(logits(made["verifier"]) - logits(path)).max() < 5e-5
