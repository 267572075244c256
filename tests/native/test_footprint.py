"""What a model is estimated to take of memory is what llama.cpp then allocates; too much is refused beforehand."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny

from via_sd_local import Llama, cli
from via_sd_local.calibration.pipeline import Calibration
from via_sd_local.calibration.plan import Plan
from via_sd_local.chat.__main__ import main as chat
from via_sd_local.errors import ModelError
from via_sd_local.progress import StageBars
from via_sd_local.runtime import available_memory, footprint, memory_check
from via_sd_local.runtime.context import N_BATCH, Context
from via_sd_local.runtime.devices import Device
from via_sd_local.runtime.footprint import Footprint, LoadPlan, estimate, plan_of
from via_sd_local.runtime.memory_check import check_memory
from via_sd_local.runtime.model import Model
from via_sd_local.runtime.placement import Placement
from via_sd_local.session.session import Session
from via_sd_local.session.settings import Settings

MIB = 1 << 20
GIB = 1 << 30


@contextmanager
def allocated() -> Iterator[dict[str, float]]:
    """What llama.cpp says it allocates inside, in bytes: weights, cache, buffers."""
    found = {"weights": 0.0, "cache": 0.0, "buffers": 0.0}
    kinds = {"model": "weights", "KV": "cache", "RS": "cache", "output": "buffers", "compute": "buffers"}

    class Reader(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if line := re.search(r"(model|KV|RS|output|compute) buffer size = +([\d.]+) MiB", record.getMessage()):
                found[kinds[line[1]]] += float(line[2]) * MIB

    logger, reader = logging.getLogger("via_sd_local.llama_cpp"), Reader()
    before = logger.level
    logger.addHandler(reader)
    logger.setLevel(logging.DEBUG)
    try:
        yield found
    finally:
        logger.removeHandler(reader)
        logger.setLevel(before)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """`memory(bytes)` is how much there is from now on."""
    return lambda n: monkeypatch.setattr(memory_check, "available_memory", lambda: int(n))


@pytest.fixture
def tiny_path(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "tiny.gguf", tiny.spec("llama"))


QUANTISED = Placement(type_k="q8_0", type_v="q4_0", flash_attn="on")


@pytest.mark.parametrize(
    ("fixture", "placement", "n_ctx"),
    [
        ("smollm2_path", Placement(), 512),
        ("smollm2_path", Placement(), 8192),
        ("smollm2_path", QUANTISED, 3000),
        ("smollm2_path", Placement(use_mmap=False), 1024),
        ("gemma_path", Placement(), 4096),
    ],
)
def test_estimates_are_within_a_tenth_of_what_a_real_model_takes(
    fixture: str, placement: Placement, n_ctx: int, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(fixture)
    guess = estimate(plan_of(path, placement, n_ctx, N_BATCH))
    with allocated() as real, closing(Model(path, placement)) as model:
        Context(model, n_ctx=n_ctx, n_threads=1).close()
    assert guess.weights == pytest.approx(real["weights"], rel=0.1)
    assert guess.cache == pytest.approx(real["cache"], rel=0.01)
    assert guess.buffers == pytest.approx(real["buffers"], rel=0.1)


@pytest.mark.parametrize("name", sorted(tiny.SPECS))
def test_estimates_fit_every_architecture(name: str, tmp_path: Path) -> None:
    path = tiny.write(
        tmp_path / "tiny.gguf", tiny.spec(name, n_layer=12, n_embd=256, n_head_kv=0 if name == "mamba" else 2)
    )
    guess = estimate(plan_of(path, Placement(), 4096, N_BATCH))
    with allocated() as real, closing(Model(path)) as model:
        Context(model, n_ctx=4096, n_threads=1).close()
    assert guess.weights == pytest.approx(real["weights"], rel=0.1)
    assert guess.cache == pytest.approx(real["cache"], rel=0.05)
    assert 0.5 * real["buffers"] < guess.buffers < 2 * real["buffers"]


def test_layers_on_devices_with_memory_of_their_own_take_no_main_memory(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def guess(**options: Any) -> Footprint:
        return estimate(plan_of(smollm2_path, Placement(**options), 4096, N_BATCH))

    def devices(kind: str, backend: str) -> None:
        found = [Device(1, f"{backend}0", "imagined", kind, backend)]
        monkeypatch.setattr("via_sd_local.runtime.devices.local_devices", lambda: found)

    cpu = guess()
    for kind, backend in (("integrated GPU", "Vulkan"), ("GPU", "MTL")):
        devices(kind, backend)
        assert guess() == cpu
    devices("GPU", "CUDA")
    assert guess(n_gpu_layers=0) == cpu
    gpu = guess()
    assert gpu.cache == 0
    assert gpu.weights < cpu.weights / 3  # the token embeddings
    assert gpu.buffers < 0.1 * cpu.buffers
    half = guess(n_gpu_layers=16)  # the output and 15 of 30 layers
    assert half.cache == cpu.cache / 2
    assert gpu.weights < half.weights < cpu.weights
    assert guess(offload_kqv=False).cache == cpu.cache
    devices("CPU", "CPU")
    assert guess(rpc_servers=("10.0.0.1:50052",)) == gpu


def test_a_split_model_is_all_of_its_files(tmp_path: Path) -> None:
    whole = tiny.spec("llama")
    tensors = tiny.random_tensors(whole)
    names = sorted(tensors)
    first, second = (tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2))
    one = estimate(plan_of(tiny.write(tmp_path / "one.gguf", whole, tensors), Placement(), 256, N_BATCH))
    tiny.write(first, whole, {name: tensors[name] for name in names[::2]})
    tiny.write(second, whole, {name: tensors[name] for name in names[1::2]})
    assert estimate(plan_of(first, Placement(), 256, N_BATCH)).weights == one.weights


def plan(path: Path, **changes: Any) -> LoadPlan:
    return replace(plan_of(path, Placement(), 1024, N_BATCH), **changes)


def test_two_models_are_added_up_and_the_refusal_has_the_numbers(
    smollm2_path: Path, tiny_path: Path, memory: Callable[[float], None]
) -> None:
    big, small = estimate(plan(smollm2_path)), estimate(plan(tiny_path))
    memory(big.total + small.total)
    check_memory([plan(smollm2_path), plan(tiny_path)])
    memory(big.total + small.total - 1)
    with pytest.raises(ModelError) as caught:
        check_memory([plan(smollm2_path), plan(tiny_path)])
    said = str(caught.value)
    total = f"{(big.total + small.total) / GIB:.2f} GiB"
    assert f"needs about {total} of memory, and {total} are available" in said
    assert f"{smollm2_path.name}: weights {big.weights / GIB:.2f} GiB, cache {big.cache / GIB:.2f} GiB" in said
    assert "tiny.gguf: weights" in said
    assert "for 1024 tokens" in said
    assert "--ignore-memory (check_memory=False in Python)" in said
    assert "\n" not in said


def test_a_file_that_is_mapped_twice_is_in_memory_once(smollm2_path: Path, memory: Callable[[float], None]) -> None:
    need = estimate(plan(smollm2_path))
    memory(2 * need.total - need.weights)
    check_memory([plan(smollm2_path), plan(smollm2_path)])
    check_memory([plan(smollm2_path, mapped=False)] * 2)  # a session loads it once
    with pytest.raises(ModelError, match="needs about"):
        check_memory([plan(smollm2_path), plan(smollm2_path, mapped=False)])


def test_of_a_loaded_model_only_mapped_weights_count_again(
    smollm2_path: Path, tiny_path: Path, memory: Callable[[float], None]
) -> None:
    """Pages of a mapped file count as available; what was allocated does not."""
    big, small = estimate(plan(smollm2_path)), estimate(plan(tiny_path))
    memory(big.weights + small.total)
    check_memory([plan(tiny_path)], loaded=[plan(smollm2_path)])
    memory(small.total)
    check_memory([plan(tiny_path)], loaded=[plan(smollm2_path, mapped=False)])
    with pytest.raises(ModelError, match="needs about"):
        check_memory([plan(tiny_path)], loaded=[plan(smollm2_path)])


def test_a_missing_or_damaged_file_is_left_to_the_loader(tmp_path: Path, memory: Callable[[float], None]) -> None:
    memory(0)
    check_memory([plan(tmp_path / "absent.gguf"), plan(tiny.write_text(tmp_path / "text.gguf"))])


#
# where it is asked
#


def test_a_session_refuses_before_it_loads_and_can_be_told_not_to(
    smollm2_path: Path, tiny_path: Path, memory: Callable[[float], None]
) -> None:
    settings = Settings(str(tiny_path), draft=str(tiny_path), n_ctx=256, threads=1)
    memory(MIB)
    with allocated() as real, pytest.raises(ModelError, match=r"of memory, and 0\.00 GiB are available"):
        Session(settings)
    assert not any(real.values())
    Session(replace(settings, check_memory=False)).close()


def test_a_draft_model_that_comes_later_is_refused_and_the_session_goes_on(
    smollm2_path: Path, memory: Callable[[float], None]
) -> None:
    settings = Settings(str(smollm2_path), n_ctx=256, threads=1, draft_tokens=2, mode="plain")
    with Session(settings) as session:
        memory(150 * MIB)  # the verifier's mapped weights are 92
        wanted = replace(settings, mode="sd", draft=str(smollm2_path))
        with pytest.raises(ModelError, match="--ignore-memory"):
            session.switch(wanted)
        assert session.settings is settings
        session.switch(replace(wanted, check_memory=False))
        assert [drafter.name for drafter in session.engine.drafters] == ["model"]


def test_the_drop_in_counts_its_own_context_and_the_draft(
    tiny_path: Path, memory: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    common: dict[str, Any] = {"n_ctx": 512, "n_batch": 64, "n_threads": 1, "verbose": False}
    seen: list[LoadPlan] = []
    monkeypatch.setattr(memory_check, "estimate", lambda plan: seen.append(plan) or footprint.estimate(plan))
    memory(MIB)
    with pytest.raises(ModelError, match="check_memory=False"):
        Llama(str(tiny_path), draft_model_path=str(tiny_path), type_k=8, type_v=8, flash_attn=True, **common)
    verifier, draft = seen
    assert (verifier.n_ctx, verifier.n_ubatch, verifier.type_k, verifier.flash_attn) == (512, 64, 8, True)
    assert (draft.path, draft.n_ctx) == (tiny_path, 512)
    Llama(str(tiny_path), check_memory=False, **common).close()
    Llama(str(tiny_path), vocab_only=True, **common).close()


@pytest.mark.parametrize("main", [cli.main, chat], ids=["complete", "chat"])
def test_the_commands_refuse_and_ignore_memory_overrides(
    main: Callable[[list[str]], int],
    smollm2_path: Path,
    memory: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    memory(100 * MIB)
    monkeypatch.setattr("via_sd_local.chat.program.read_piped", lambda: "Hello")
    arguments = ["--verifier", str(smollm2_path), "--n-ctx", "512", "--max-tokens", "1", "--threads", "1"]
    arguments = ["complete", "--prompt", "Hello", *arguments] if main is cli.main else arguments
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "0.10 GiB are available" in said.err
    assert said.err.count("\n") == 1
    assert main([*arguments, "--ignore-memory"]) == 0


def test_a_calibration_refuses_both_models_and_ignore_memory_overrides(
    tiny_path: Path,
    tmp_path: Path,
    memory: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    memory(MIB)
    with pytest.raises(ModelError, match=r"tiny\.gguf.*; tiny\.gguf"):
        Calibration(Plan(str(tiny_path), draft=str(tiny_path)), StageBars(shown=False)).run()
    plans: list[Plan] = []

    def stop(self: Calibration) -> None:
        plans.append(self.plan)
        raise ModelError("far enough")

    monkeypatch.setattr(Calibration, "run", stop)
    output = str(tmp_path / "p.json")
    assert cli.main(["calibrate", "--verifier", str(tiny_path), "--ignore-memory", "--output", output]) == 1
    assert "far enough" in capsys.readouterr().err
    assert not plans[0].check_memory


#
# how much there is
#


def write_group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("memory_", "memory.")).write_text(text)


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = type("Memory", (), {"available": 10 * GIB})
    monkeypatch.setattr(available_memory.psutil, "virtual_memory", lambda: machine)
    own = tmp_path / "cgroup"

    def there(lines: str) -> int:
        own.write_text(lines)
        return available_memory.available_memory(tmp_path / "groups", own)

    assert there("0::/a/b\n") == 10 * GIB  # nothing there to read
    stat = f"anon 1\ninactive_file {GIB // 2}\nactive_file {GIB // 2}\n"
    for folder, limit in (("", "max"), ("a", str(4 * GIB)), ("a/b", str(6 * GIB))):
        files = {"memory_max": limit + "\n", "memory_current": f"{2 * GIB}\n", "memory_stat": stat}
        write_group(tmp_path / "groups" / folder, **files)
    assert there("0::/a/b\n") == 3 * GIB  # the group above is the narrower one; cached files can go
    assert there("0::/\n") == 10 * GIB
    old = {"memory_limit_in_bytes": str(GIB), "memory_usage_in_bytes": str(2 * GIB), "memory_stat": ""}
    write_group(tmp_path / "groups" / "memory" / "c", **old)
    assert there("5:cpu:/c\n4:memory:/c\n0::/\n") == 0
    own.unlink()
    assert available_memory.available_memory(tmp_path / "groups", own) == 10 * GIB


def test_this_machine_has_some() -> None:
    assert 64 * MIB < available_memory.available_memory() < 1 << 50
