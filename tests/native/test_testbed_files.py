"""What the testbed refuses, and the files that it writes: no half a file is left behind."""

from __future__ import annotations

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
import testbeds
import tiny
from testbeds import SAME, Build, files_in

from via_sd_local.catalog import inventory, lookup, puller
from via_sd_local.catalog.registry import registry
from via_sd_local.cli import main
from via_sd_local.errors import ModelError, NativeError
from via_sd_local.testbed import build as testbed_build
from via_sd_local.testbed.recipe import Recipe

build, failure, models, source = testbeds.build, testbeds.failure, testbeds.models, testbeds.source


# what does not fit


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--embed", "32"], "--embed is 32, less than the source's; give 64 or more"),
        (["--ffn", "64"], "--ffn is 64, less than the source's; give 96 or more"),
        (["--kv-heads", "1"], "--kv-heads is 1, less than the source's; give 2 or more"),
        (["--kv-heads", "0"], "--kv-heads is 0; give at least the source's own"),
        (
            ["--embed", "100"],
            "--embed is 100, and Q4_0 has blocks of 32; give a multiple, or another quant",
        ),
        (["--ffn", "4600"], "--ffn is 4600, and Q4_0 has blocks of 32"),
        (
            ["--quant", "q4_k_m", "--kv-heads", "3"],
            "--kv-heads is 3, for rows of 96 weights, and Q4_K_M has blocks of 256",
        ),
        (["--quant", "Q9"], "--quant is 'Q9'; llama.cpp has F32, F16, Q4_0"),
        (["--copies", "-1"], "--copies is -1; give 0 or more"),
        (["--copies", "507"], "--copies is 507, for 513 layers in all, and llama.cpp takes 512; give 506 or fewer"),
        (["--copies-from", "1"], "--copies-from is 1.0; give a share of the layers from 0 to below 1"),
        (["--copies-from", "nan"], "--copies-from is nan"),
        (
            ["--copies-from", "0.9"],
            "--copies-from is 0.9, which leaves no place for copies among 6 layers, .*give 0.67 or less",
        ),
        (["--scale", "-0.1"], "--scale is -0.1; give a number from 0 to 1"),
        (["--scale", "nan"], "--scale is nan"),
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
    assert lookup.resolve(name) == Path(made["verifier"]) == models / name


def test_the_registered_draft_tells_how_it_is_made(
    models: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "smollm2-135m-q4_0"
    remedy = f"{name} is not on this machine, and not fetched but made: run `via-sd-local testbed build`"
    for look_up in (lookup.resolve, puller.pull):
        with pytest.raises(ModelError, match=remedy):
            look_up(name)
    assert main(["models", "list"]) == 0
    assert "build  not on this machine; `via-sd-local testbed build` makes it\n" in capsys.readouterr().out
    registered = source.with_name(registry().models["smollm2-135m"].file)
    source.rename(registered)  # the draft's name comes from the source's
    assert main(["testbed", "build", "--source", str(registered), "--copies", "0", *SAME, "--quant", "F16"]) == 0
    assert capsys.readouterr().out.endswith(f"{models}/testbed-e64-f96-k2-c0-s0.08-F16.gguf\n")
    assert lookup.resolve(name) == puller.pull(name) == models / f"{name}.gguf"
    assert [entry.path for entry in inventory.listing() if entry.name == name] == [models / f"{name}.gguf"]
    assert main(["models", "list"]) == 0
    assert f"  here   {name}" in capsys.readouterr().out


def test_one_tensor_is_held_at_a_time(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every array is gone when the next one is made."""
    alive: list[Any] = []
    made = 0
    padded = testbed_build.padded

    def watched(*arguments: Any) -> Any:
        nonlocal made
        assert [reference for reference in alive if reference() is not None] == []
        array = padded(*arguments)
        alive[:] = [weakref.ref(array)]
        made += 1
        return array

    monkeypatch.setattr(testbed_build, "padded", watched)
    recipe = Recipe(64, 96, 2, copies=2, quant="F16")
    testbed_build.build(source, recipe, tmp_path / "a.gguf", tmp_path / "b.gguf", progress=False)
    assert made == 3 + 8 * 9
