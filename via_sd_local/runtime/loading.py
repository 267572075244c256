"""Loads a GGUF's weights with llama.cpp onto the devices of a placement."""

from __future__ import annotations

import ctypes
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..binding import allocate, llama
from ..errors import ModelError
from ..native_log import take_errors
from .devices import Device, default_devices, local_devices, select_devices
from .placement import SPLIT_MODES, Placement
from .rpc import Servers

GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class Weights:
    """A model in memory: llama.cpp's model pointer, and what its layers may lie on besides the CPU.

    `n_devices` counts GPUs and RPC devices. `servers` is None without RPC servers; they must be closed after the
    pointer is freed.
    """

    handle: int
    n_devices: int
    servers: Servers | None = None


def load_weights(path: Path, placement: Placement) -> Weights:
    """Load a file; the caller frees the result.

    Raises ModelError, with llama.cpp's reason where it gives one, for a file that cannot be loaded or a server that is
    lost meanwhile, and ValueError for a placement that this machine's devices cannot meet.
    """
    _check_file(path)
    take_errors()
    servers = Servers(placement.rpc_servers) if placement.rpc_servers else None
    try:
        return _load(path, placement, servers)
    except BaseException:
        if servers:
            servers.close()
        raise


def _load(path: Path, placement: Placement, servers: Servers | None) -> Weights:
    devices = choose_devices(placement, servers.devices if servers else [])
    params, _arrays = model_params(placement, devices)
    handle = allocate(
        lambda: llama.llama_model_load_from_file(os.fsencode(path), params),
        lambda loaded: llama.llama_model_free(loaded),
    )
    if server := servers and servers.lost():
        if handle:
            llama.llama_model_free(handle)
        raise ModelError(f"{path}: the RPC server {server} was lost while the model was loading")
    if not handle:
        raise ModelError(f"{path}: llama.cpp cannot load this file: {_reason(take_errors())}")
    return Weights(handle, len(devices), servers)


def model_params(placement: Placement, devices: list[Device]) -> tuple[llama.llama_model_params, list[Any]]:
    """Return llama.cpp's model parameters, and the arrays that they point into, which must live as long.

    Warns if `n_gpu_layers` has no effect; ValueError for a placement that these devices cannot meet.
    """
    if placement.n_gpu_layers > 0 and not devices:
        warnings.warn(
            f"n_gpu_layers is {placement.n_gpu_layers}, but this build sees no GPU: all layers stay on the CPU",
            RuntimeWarning,
            stacklevel=5,  # the caller of Model
        )
    if placement.main_gpu >= max(len(devices), 1):
        raise ValueError(f"main_gpu is {placement.main_gpu}, counted from 0; there are {len(devices)} devices")
    if len(placement.tensor_split) > len(devices):
        raise ValueError(f"tensor_split has {len(placement.tensor_split)} shares for {len(devices)} devices")
    if placement.split_mode == "tensor" and not devices:
        raise ValueError("split_mode is 'tensor', which needs at least one GPU; this build sees none")
    params = llama.llama_model_default_params()
    params.n_gpu_layers = placement.n_gpu_layers
    params.split_mode = SPLIT_MODES[placement.split_mode]
    params.main_gpu = placement.main_gpu
    params.load_mode = placement.load_mode
    # without a list, llama.cpp would use the servers of every model that this process has ever loaded
    handles = (ctypes.c_void_p * (len(devices) + 1))(*(device.handle for device in devices), None)
    params.devices = ctypes.cast(handles, ctypes.c_void_p)
    shares = (ctypes.c_float * int(llama.llama_max_devices()))(*placement.tensor_split)
    if placement.tensor_split:
        params.tensor_split = shares
    return params, [handles, shares]


def choose_devices(placement: Placement, remote: list[Device]) -> list[Device]:
    """Return the devices that get layers: the ones `placement` names, else `remote` and this machine's GPUs.

    Raises ValueError for a name that no device has.
    """
    local = local_devices()
    available = [*remote, *local]
    return select_devices(placement.devices, available) if placement.devices else [*remote, *default_devices(local)]


def _check_file(path: Path) -> None:
    """Raise ModelError for what llama.cpp would reject without a useful reason: no file, no access, no GGUF."""
    if not path.exists():
        raise ModelError(f"{path}: there is no such file")
    if path.is_dir():
        raise ModelError(f"{path}: this is a folder; name the .gguf file in it")
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    if magic != GGUF_MAGIC:
        problem = "it is empty" if not magic else f"it begins with {magic!r} instead of {GGUF_MAGIC!r}"
        raise ModelError(f"{path}: this is not a GGUF file: {problem}")


def _reason(errors: list[str]) -> str:
    """Return the first of llama.cpp's error lines, which is the cause; the later ones are its consequences."""
    reason = errors[0].strip() if errors else "it gave no reason"
    return f"it holds no weights, only a vocabulary ({reason})" if "token_embd.weight' not found" in reason else reason
