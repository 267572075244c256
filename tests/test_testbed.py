"""The testbed keeps the source's function, its copies are where and what it says, and no half a file is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny

from via_sd_local import catalog, testbed, testbed_build
from via_sd_local.binding import llama
from via_sd_local.cli import main
from via_sd_local.context import Context
from via_sd_local.errors import ModelError, NativeError
from via_sd_local.gguf_copy import GgufFile
from via_sd_local.mask import LayerMask
from via_sd_local.model import Model
from via_sd_local.testbed import Dims, Recipe, stack
from via_sd_local.tiers import Verifier

TOKENS = [(37 * i) % 320 for i in range(30)]
SAME = ["--embed", "64", "--ffn", "96", "--kv-heads", "2"]  # the dimensions of tiny.spec("llama")
Build = Callable[..., Any]


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty models folder of this test's own."""
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "models"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "toy.gguf", tiny.spec("llama"))


@pytest.fixture
def build(source: Path, capsys: pytest.CaptureFixture[str]) -> Build:
    """`build(*arguments)` runs the command on the tiny source and returns what `--json` prints."""

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        assert main(["testbed", "build", "--source", str(source), "--json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def failure(source: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`failure(*arguments)` is the command's error line, where it fails and prints nothing else."""

    def run(*arguments: str, source: Path = source) -> str:
        capsys.readouterr()
        assert main(["testbed", "build", "--source", str(source), *arguments]) == 1
        out, error = capsys.readouterr()
        assert out == ""
        assert error.count("\n") == 1
        return error

    return run


@pytest.fixture
def exact_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """A float32 KV cache and no flash attention, both of which round to float16 by default."""
    defaults = llama.llama_context_default_params

    def params() -> Any:
        changed = defaults()
        changed.type_k = changed.type_v = 0  # GGML_TYPE_F32
        changed.flash_attn_type = 0
        return changed

    monkeypatch.setattr(llama, "llama_context_default_params", params)


@pytest.fixture
def logits(keep: Callable[[Any], Any]) -> Callable[..., np.ndarray]:
    """`logits(path, mask text)`: of every position of TOKENS, `[30, n_vocab]`."""

    def run(path: str | Path, mask: str = "") -> np.ndarray:
        model = keep(Model(path))
        context = keep(Context(model, n_ctx=64, n_threads=1))
        context.set_mask(LayerMask.parse(mask, model.n_layer).to_bytes())
        result: np.ndarray = context.decode(TOKENS, 0, len(TOKENS)).copy()
        return result

    return run


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*")) if folder.exists() else []


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


# what does not fit


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--embed", "32"], "embed is 32, less than the source's; give 64 or more"),
        (["--ffn", "64"], "ffn is 64, less than the source's; give 96 or more"),
        (["--kv-heads", "1"], "kv_heads is 1, less than the source's; give 2 or more"),
        (["--kv-heads", "0"], "kv_heads is 0; give at least the source's own"),
        (["--embed", "100"], "embed is 100, and Q4_0 has blocks of 32; give a multiple, or another quant such as F16"),
        (["--ffn", "4600"], "ffn is 4600, and Q4_0 has blocks of 32"),
        (
            ["--quant", "q4_k_m", "--kv-heads", "3"],
            "kv_heads is 3, for rows of 96 weights, and Q4_K_M has blocks of 256",
        ),
        (["--quant", "Q9"], "quant is 'Q9'; llama.cpp has F32, F16, Q4_0"),
        (["--copies", "-1"], "copies is -1; give 0 for none"),
        (["--copies", "507"], "copies is 507, for 513 layers in all, and llama.cpp takes 512; give 506 or fewer"),
        (["--copies-from", "1"], "copies_from is 1.0; give a share of the layers from 0 to below 1"),
        (["--copies-from", "nan"], "copies_from is nan"),
        (["--copies-from", "0.9"], "copies_from is 0.9, which leaves no place among 6 layers, .*give 0.67 or less"),
        (["--scale", "-0.1"], "scale is -0.1; give a number from 0 to 1"),
        (["--scale", "nan"], "scale is nan"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_recipe_that_does_not_fit_is_refused(
    failure: Callable[..., str], models: Path, arguments: list[str], message: str
) -> None:
    assert re.match(f"error: {message}", failure(*arguments))
    assert files_in(models) == []


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("qwen2", {}, "and this one is qwen2; name another --source"),
        ("llama-moe", {}, "and this one has 4 experts a layer"),
        ("llama", {"llama.attention.value_length": 8}, "keys and values have different sizes"),
        ("llama", {"llama.feed_forward_length": [96] * 6}, "llama.feed_forward_length is [96, 96, 96, 96, 96, 96]"),
        ("llama", {"llama.embedding_length": 128}, "token_embd.weight has the shape [320, 64]"),
        ("llama", {"split.count": 2}, "this file is only a part of one"),
    ],
    ids=["architecture", "experts", "value length", "array", "shape", "split"],
)
def test_other_models_are_refused(
    failure: Callable[..., str], tmp_path: Path, models: Path, name: str, overrides: dict[str, Any], message: str
) -> None:
    path = tiny.write(tmp_path / "other.gguf", tiny.spec(name), overrides=overrides)
    assert message in failure(source=path)
    assert files_in(models) == []


def test_an_unknown_tensor_and_broken_files_are_refused(failure: Callable[..., str], tmp_path: Path) -> None:
    spec = tiny.spec("llama")
    extra = tiny.random_tensors(spec) | {"blk.0.attn_qkv.weight": np.zeros((128, 64), np.float32)}
    assert "has a tensor blk.0.attn_qkv.weight" in failure(source=tiny.write(tmp_path / "a.gguf", spec, extra))
    for write in (tiny.write_empty, tiny.write_text):
        assert "this is not a whole GGUF file" in failure(source=write(tmp_path / "b.gguf"))
    assert "this is not a whole GGUF file" in failure(source=tiny.write_truncated(tmp_path / "c.gguf", spec))


def test_weights_beyond_float16_are_refused(failure: Callable[..., str], tmp_path: Path, models: Path) -> None:
    spec = tiny.spec("llama")
    tensors = tiny.random_tensors(spec)
    tensors["blk.5.ffn_up.weight"][0, 0] = 1e6
    path = tiny.write(tmp_path / "large.gguf", spec, tensors)
    assert "weights that float16 cannot hold; build with the quant F32" in failure(*SAME, source=path)
    assert files_in(models) == []


# files


def test_a_failed_quantisation_leaves_nothing(failure: Callable[..., str], models: Path) -> None:
    """IQ2_XXS needs an importance matrix, which we never have."""
    error = failure("--quant", "IQ2_XXS", "--embed", "256", "--ffn", "256", "--kv-heads", "8", "--copies", "1")
    assert "llama.cpp cannot quantise this model to IQ2_XXS: " in error
    assert "requires an imatrix" in error
    assert files_in(models) == []


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (NativeError("no"), 1)], ids=["^C", "error"])
@pytest.mark.parametrize("moment", ["write_gguf", "quantise"])
def test_an_interruption_with_half_a_file_leaves_nothing(
    source: Path, models: Path, monkeypatch: pytest.MonkeyPatch, moment: str, error: BaseException, status: int
) -> None:
    def half(*arguments: Any, **_options: object) -> None:
        target = arguments[0 if moment == "write_gguf" else 1]
        target.write_bytes(b"half")
        assert len(files_in(models)) == (1 if moment == "write_gguf" else 2)
        raise error

    monkeypatch.setattr(testbed_build, moment, half)
    assert main(["testbed", "build", "--source", str(source), "--quiet", *SAME]) == status
    assert files_in(models) == []


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_while_quantising_ends_both_processes(smollm2_path: Path, tmp_path: Path) -> None:
    """The draft of a real model takes long enough to be interrupted."""
    target = tmp_path / "out" / "testbed.gguf"
    code = "import sys; from via_sd_local.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "testbed", "build", "--source", str(smollm2_path), "--embed", "576"]
    command += ["--ffn", "1536", "--kv-heads", "3", "--copies", "0", "--quant", "Q5_1", "--output", str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as child:
        deadline = time.monotonic() + 60
        while len(files_in(target.parent)) < 2:  # the unquantised file, and the quantised one
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(child.pid, signal.SIGINT)
        out, _ = child.communicate(timeout=20)
    assert child.returncode == 130
    assert out == b""
    assert files_in(target.parent) == []


def test_what_is_there_is_kept_unless_forced(
    build: Build, failure: Callable[..., str], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = build("--quant", "Q8_0", "--embed", "128", "--ffn", "128", "--kv-heads", "4", "--copies", "1")
    verifier, draft = Path(made["verifier"]), Path(made["draft"])
    assert files_in(models) == ["testbed-toy-e128-f128-k4-c1-s0.08-Q8_0.gguf", "toy-q4_0.gguf"]
    assert made["sizes"] == {"verifier": verifier.stat().st_size, "draft": draft.stat().st_size}
    before = (verifier.stat().st_ino, draft.stat().st_ino)
    arguments = ["--quant", "Q8_0", "--embed", "128", "--ffn", "128", "--kv-heads", "4", "--copies", "1"]
    assert build(*arguments) == made
    assert (verifier.stat().st_ino, draft.stat().st_ino) == before
    assert build(*arguments, "--force") == made
    assert (verifier.stat().st_ino, draft.stat().st_ino) != before
    other = failure(*arguments, "--scale", "0.5", "--output", str(verifier))
    assert "exists and is not what this command would build; overwrite it with --force" in other


def test_the_source_is_never_overwritten(failure: Callable[..., str], source: Path) -> None:
    before = source.read_bytes()
    assert "is the source itself" in failure("--output", str(source), "--force")
    draft = source.with_name("toy-q4_0.gguf")
    assert "is where the draft goes" in failure("--output", str(draft))
    assert source.read_bytes() == before


def test_a_full_disk_is_noticed_before_anything_is_written(
    failure: Callable[..., str], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testbed_build.shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    error = failure("--copies", "1")
    assert "GB are needed in" in error
    assert "of them only while building) and its disk has 0.00 GB free; free some" in error
    assert files_in(models) == []


def test_the_files_are_found_by_name(build: Build, models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = build("--quant", "Q8_0", "--embed", "64", "--ffn", "96", "--kv-heads", "2", "--copies", "2", "--spread")
    name = "testbed-toy-e64-f96-k2-c2-from0-s0.08-Q8_0.gguf"
    assert catalog.resolve(name) == Path(made["verifier"]) == models / name


def test_the_registered_draft_tells_how_it_is_made(
    models: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "smollm2-135m-q4_0"
    remedy = f"{name} is not on this machine, and not fetched but made: run `via-sd-local testbed build`"
    for look_up in (catalog.resolve, catalog.pull):
        with pytest.raises(ModelError, match=remedy):
            look_up(name)
    assert main(["models", "list"]) == 0
    assert "[not here; make it with `via-sd-local testbed build`]" in capsys.readouterr().out
    registered = source.with_name(catalog.load().models["smollm2-135m"].file)
    source.rename(registered)  # the draft's name comes from the source's
    assert main(["testbed", "build", "--source", str(registered), "--copies", "0", *SAME, "--quant", "F16"]) == 0
    assert capsys.readouterr().out.endswith(f"{models}/testbed-e64-f96-k2-c0-s0.08-F16.gguf\n")
    assert catalog.resolve(name) == catalog.pull(name) == models / f"{name}.gguf"
    assert [entry.path for entry in catalog.listing() if entry.name == name] == [models / f"{name}.gguf"]
    assert main(["models", "list"]) == 0
    assert f"[{models}/{name}.gguf]" in capsys.readouterr().out


def test_one_tensor_is_held_at_a_time(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every array is gone when the next one is made."""
    alive: list[Any] = []
    made = 0
    padded = testbed.padded

    def watched(*arguments: Any) -> Any:
        nonlocal made
        assert [reference for reference in alive if reference() is not None] == []
        array = padded(*arguments)
        alive[:] = [weakref.ref(array)]
        made += 1
        return array

    monkeypatch.setattr(testbed, "padded", watched)
    recipe = Recipe(64, 96, 2, copies=2, quant="F16")
    testbed_build.build(source, recipe, tmp_path / "a.gguf", tmp_path / "b.gguf", progress=False)
    assert made == 3 + 8 * 9


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
