"""Where models lie: bad placements are refused with a reason, good ones change only where things are computed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest
import tiny
from commands import Run, assert_refused

from via_sd_local import binding
from via_sd_local.cli.options import add_settings, settings_from
from via_sd_local.errors import NativeError
from via_sd_local.libraries import library_file
from via_sd_local.runtime import devices, loading
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.devices import Device
from via_sd_local.runtime.model import Model
from via_sd_local.runtime.placement import DEFAULT, FLASH_ATTN, Placement, parse_shares
from via_sd_local.session.session import Session
from via_sd_local.session.settings import Settings
from via_sd_local.tiers.model_drafter import ModelDrafter

files, run, answer = commands.files, commands.run, commands.answer
Make = Callable[..., Model]
WIDE = tiny.spec("llama", n_head=2)  # heads of 32, the block of the quantised types
TOKENS = [1, 270, 280, 290, 300]


def device(name: str, kind: str = "GPU", backend: str = "CUDA") -> Device:
    return Device(hash(name) & 0xFFFF, name, "a device", kind, backend)


#
# refusals
#


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split_mode": "rows"}, "split_mode is 'rows'; it is one of none, layer, row, tensor"),
        ({"flash_attn": "yes"}, "flash_attn is 'yes'; it is one of auto, off, on"),
        ({"type_k": "q8"}, "type_k is 'q8'; it is one of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1"),
        ({"type_v": ""}, "type_v is ''; it is one of"),
        ({"n_gpu_layers": -2}, "n_gpu_layers is -2; give a number of layers, or -1 for all of them"),
        ({"main_gpu": -1}, "main_gpu is -1; devices are counted from 0"),
        ({"tensor_split": (1.0, -1.0)}, "tensor_split has -1.0; a share is a finite number that is at least 0"),
        ({"tensor_split": (float("nan"),)}, "tensor_split has nan"),
        ({"tensor_split": (0.0, 0.0)}, "tensor_split is all zeros; at least one device must get layers"),
        ({"type_v": "q4_0", "flash_attn": "off"}, "type_v is 'q4_0' with flash_attn 'off'; a quantised V cache"),
        ({"split_mode": "tensor", "flash_attn": "off"}, "splitting tensors requires flash_attn"),
        ({"rpc_servers": ("host",)}, "rpc_servers has 'host'; a server is host:port"),
        ({"rpc_servers": ("host:0",)}, "rpc_servers has 'host:0'"),
        ({"rpc_servers": ("host:65536",)}, "rpc_servers has 'host:65536'"),
        ({"rpc_servers": ("::1:50052",)}, "no IPv6"),
        ({"rpc_servers": (":50052",)}, "rpc_servers has ':50052'"),
        ({"rpc_servers": ("a:1", "a:1")}, "rpc_servers names a server twice"),
        ({"rpc_servers": tuple(f"a:{port}" for port in range(1, 18))}, "rpc_servers has 17 entries"),
    ],
)
def test_a_bad_placement_is_refused_by_name_and_value(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Placement(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"main_gpu": 1}, "main_gpu is 1, counted from 0; there are 0 devices"),
        ({"tensor_split": (3.0, 1.0)}, "tensor_split has 2 shares for 0 devices"),
        ({"devices": ("CUDA7",)}, "devices has 'CUDA7'; this build sees none but the CPU"),
        ({"split_mode": "tensor"}, "split_mode is 'tensor', which needs at least one GPU"),
    ],
)
def test_what_needs_a_gpu_says_so_without_one(
    options: dict[str, Any], message: str, tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "local_devices", lambda: [device("CPU", "CPU", "CPU")])
    with pytest.raises(ValueError, match=re.escape(message)):
        tiny_model(WIDE, placement=Placement(**options))


def test_a_number_of_gpu_layers_without_a_gpu_is_a_warning(tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "local_devices", list)
    with pytest.warns(RuntimeWarning, match="n_gpu_layers is 20, but this build sees no GPU"):
        tiny_model(WIDE, placement=Placement(n_gpu_layers=20))
    tiny_model(WIDE, placement=Placement(n_gpu_layers=0))  # warnings are errors here


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        (Placement(type_k="q8_0"), "K cache type q8_0 with block size 32 does not divide n_embd_head_k=16"),
        (Placement(type_v="q4_0"), "V cache type q4_0 with block size 32 does not divide n_embd_head_v=16"),
    ],
)
def test_what_llama_cpp_cannot_hold_in_its_cache_comes_with_its_reason(
    placement: Placement, reason: str, tiny_model: Make
) -> None:
    model = tiny_model(tiny.spec("llama"), placement=placement)
    with pytest.raises(NativeError, match=reason):
        Context(model, n_ctx=64, n_threads=1)
    assert model.users == 0


#
# which devices
#


def test_models_go_to_the_discrete_gpus_else_to_the_integrated_ones_of_one_backend() -> None:
    cpu, blas = device("CPU", "CPU", "CPU"), device("BLAS", "accelerator", "BLAS")
    discrete = [device("CUDA0"), device("CUDA1")]
    integrated = [device("Vulkan0", "integrated GPU", "Vulkan"), device("SYCL0", "integrated GPU", "SYCL")]
    assert devices.default_devices([blas, *integrated, *discrete, cpu]) == discrete
    assert devices.default_devices([blas, *integrated, cpu]) == integrated[:1]
    assert devices.default_devices([blas, cpu]) == []


def test_a_gpu_that_two_backends_see_is_used_once() -> None:
    cuda = replace(device("CUDA0"), id="0000:c1:00.0")
    vulkan = replace(device("Vulkan0", backend="Vulkan"), id="0000:c1:00.0")
    other = replace(device("Vulkan1", backend="Vulkan"), id="0000:c2:00.0")
    unknown = [device("SYCL0", backend="SYCL"), device("SYCL1", backend="SYCL")]
    assert devices.default_devices([cuda, vulkan, other, *unknown]) == [cuda, other, *unknown]


def test_named_devices_come_in_the_order_of_their_names() -> None:
    known = [device("CUDA0"), device("CUDA1"), device("CPU", "CPU", "CPU")]
    assert [selected.name for selected in devices.select_devices(("CUDA1", "CUDA0"), known)] == ["CUDA1", "CUDA0"]
    with pytest.raises(ValueError, match="devices has 'CPU'; this build sees CUDA0, CUDA1"):
        devices.select_devices(("CPU",), known)


def test_the_parameters_carry_the_placement() -> None:
    gpus = [device("CUDA0"), device("CUDA1")]
    placement = Placement(7, 1, (3.0, 1.0), "row", use_mlock=True)
    params, keep = loading.model_params(placement, gpus)
    assert (params.n_gpu_layers, params.main_gpu, params.split_mode, params.load_mode) == (7, 1, 2, 3)
    assert list(params.tensor_split[:3]) == [3.0, 1.0, 0.0]
    assert list(keep[0]) == [gpus[0].handle, gpus[1].handle, None]
    with pytest.raises(ValueError, match="main_gpu is 2, counted from 0; there are 2 devices"):
        loading.model_params(Placement(main_gpu=2), gpus)
    with pytest.raises(ValueError, match="tensor_split has 3 shares for 2 devices"):
        loading.model_params(Placement(tensor_split=(1.0, 1.0, 1.0)), gpus)


@pytest.mark.parametrize(
    ("mmap", "mlock", "mode"), [(True, False, -1), (False, False, 0), (False, True, 2), (True, True, 3)]
)
def test_mmap_and_mlock_are_one_load_mode(mmap: bool, mlock: bool, mode: int) -> None:
    assert Placement(use_mmap=mmap, use_mlock=mlock).load_mode == mode


def test_the_names_of_cache_types_are_those_of_ggml() -> None:
    from via_sd_local.runtime.placement import CACHE_TYPES, FLASH_ATTN

    name = binding.declare(devices._base, "ggml_type_name", [devices.ctypes.c_int], devices.ctypes.c_char_p)
    assert [name(number).decode() for number in CACHE_TYPES.values()] == list(CACHE_TYPES)
    shown = {binding.llama.llama_flash_attn_type_name(value): key for key, value in FLASH_ATTN.items()}
    assert shown == {b"auto": "auto", b"disabled": "off", b"enabled": "on"}


@pytest.mark.parametrize(
    ("platform", "file"),
    [("linux", "libggml-base.so"), ("darwin", "libggml-base.dylib"), ("win32", "ggml-base.dll")],
)
def test_libraries_have_their_platforms_names(platform: str, file: str) -> None:
    assert library_file("ggml-base", platform) == file


def test_a_library_that_is_not_there_is_an_import_error() -> None:
    with pytest.raises(ImportError, match=r"ggml-nonesuch.* cannot be loaded .*; build again with `make install`"):
        binding.shared_library("ggml-nonesuch")


#
# what stays the same
#


@pytest.mark.parametrize(
    "placement",
    [
        Placement(use_mmap=False),
        Placement(offload_kqv=False),
        Placement(n_gpu_layers=0),
        Placement(split_mode="none"),
        Placement(flash_attn="off"),  # what auto chooses on a CPU
    ],
    ids=str,
)
def test_where_a_model_lies_does_not_move_its_logits(
    placement: Placement, tiny_model: Make, context: Callable[..., Context]
) -> None:
    expected = context(tiny_model(WIDE)).decode(TOKENS, 0, len(TOKENS)).copy()
    assert np.array_equal(context(tiny_model(WIDE, placement=placement)).decode(TOKENS, 0, len(TOKENS)), expected)


@pytest.mark.parametrize(
    ("placement", "limit"),
    [
        (Placement(flash_attn="on"), 0.05),
        (Placement(flash_attn="off", type_k="f32", type_v="f32"), 0.05),
        (Placement(type_k="bf16", type_v="bf16"), 0.1),
        (Placement(type_k="q8_0", type_v="q8_0"), 0.1),
        (Placement(type_k="q4_0", flash_attn="off"), 1.0),
    ],
    ids=str,
)
def test_other_number_formats_move_logits_by_their_rounding(
    placement: Placement, limit: float, tiny_model: Make, context: Callable[..., Context]
) -> None:
    expected = context(tiny_model(WIDE)).decode(TOKENS, 0, len(TOKENS)).copy()
    found = context(tiny_model(WIDE, placement=placement)).decode(TOKENS, 0, len(TOKENS))
    assert 0 < np.abs(found - expected).max() <= limit


#
# options and sessions
#


def parsed(*options: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_settings(parser, verifier="v")
    return settings_from(parser.parse_args(options))


def test_options_place_the_verifier_and_the_draft_separately() -> None:
    assert parsed().placement == parsed().draft_placement == DEFAULT
    verifier = "--gpu-layers 3 --main-gpu 1 --tensor-split 3,1 --split-mode row --devices CUDA0,CUDA1 --flash-attn on"
    more = "--cache-type-k q8_0 --cache-type-v q4_0 --no-kv-offload --no-mmap --mlock"
    settings = parsed(*verifier.split(), *more.split(), "--draft", "d", "--draft-gpu-layers", "0", "--draft-no-mmap")
    assert settings.placement == Placement(
        *(3, 1, (3.0, 1.0), "row", ("CUDA0", "CUDA1"), "on", "q8_0", "q4_0", False, False, True)
    )
    assert settings.draft_placement == Placement(n_gpu_layers=0, use_mmap=False)


@pytest.mark.parametrize(
    ("placement", "n_devices", "expected"),
    [
        (DEFAULT, 0, "off"),  # slower on CPUs
        (DEFAULT, 1, "auto"),
        (Placement(flash_attn="on"), 0, "on"),
        (Placement(flash_attn="off"), 1, "off"),
        (Placement(type_k="q8_0"), 0, "auto"),  # llama.cpp checks the sizes of a quantised cache only with it
        (Placement(type_v="q8_0"), 0, "auto"),  # and needs it for a quantised V
    ],
)
def test_flash_attention_is_for_devices(placement: Placement, n_devices: int, expected: str) -> None:
    assert placement.flash_attn_type(n_devices) == FLASH_ATTN[expected]


def test_shares_are_numbers() -> None:
    assert parse_shares("3, 1.5") == parse_shares("3/1.5") == (3.0, 1.5)
    with pytest.raises(ValueError, match="tensor_split is '3;1'; it is a list of numbers like 3,1"):
        parse_shares("3;1")


def test_a_placement_of_a_draft_needs_a_draft() -> None:
    with pytest.raises(ValueError, match="draft_placement is given, but there is no draft model"):
        Settings("v", drafter="lookup", draft_placement=Placement(n_gpu_layers=0))


def test_a_bad_placement_is_one_line_on_the_command_line(answer: Run) -> None:
    assert_refused(answer("--cache-type-k", "q9"), "--cache-type-k is 'q9'; it is one of f32")
    assert_refused(answer("--cache-type-k", "q8_0"), "K cache type q8_0 with block size 32")
    assert_refused(answer("--tensor-split", "x"), "--tensor-split is 'x'")


def test_a_draft_of_the_same_file_is_loaded_again_only_where_it_lies_elsewhere(files: Path) -> None:
    path = str(files / "llama.gguf")
    for draft_placement, shared in ((DEFAULT, True), (Placement(use_mmap=False), False)):
        settings = Settings(path, draft=path, draft_tokens=2, threads=1, draft_placement=draft_placement)
        with Session(settings) as session:
            drafter = session.engine.drafters[0]
            assert isinstance(drafter, ModelDrafter)
            assert (drafter.model is session.model) == shared
            assert drafter.model.placement == draft_placement
