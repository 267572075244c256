"""The devices that ggml can compute on: the CPU, GPUs, and those of RPC servers that have been added."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..binding import declare, shared_library

KINDS = ("CPU", "GPU", "integrated GPU", "accelerator", "meta")  # ggml_backend_dev_type
_GPU, _INTEGRATED = 1, 2
_RPC = "RPC"
_UNIFIED = ("MTL", "Metal")  # backends whose GPUs share main memory

_ggml, _base = shared_library("ggml"), shared_library("ggml-base")
_text, _pointer, _size = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t

_count = declare(_ggml, "ggml_backend_dev_count", [], _size)
_get = declare(_ggml, "ggml_backend_dev_get", [_size], _pointer)
_reg_by_name = declare(_ggml, "ggml_backend_reg_by_name", [_text], _pointer)
_name = declare(_base, "ggml_backend_dev_name", [_pointer], _text)
_description = declare(_base, "ggml_backend_dev_description", [_pointer], _text)
_type = declare(_base, "ggml_backend_dev_type", [_pointer], ctypes.c_int)
_memory = declare(_base, "ggml_backend_dev_memory", [_pointer, ctypes.POINTER(_size), ctypes.POINTER(_size)], None)
_reg_of = declare(_base, "ggml_backend_dev_backend_reg", [_pointer], _pointer)
_reg_name = declare(_base, "ggml_backend_reg_name", [_pointer], _text)


class _Props(ctypes.Structure):
    """The C structure `ggml_backend_dev_props`."""

    _fields_ = (
        *(("name", _text), ("description", _text), ("free", _size), ("total", _size), ("type", ctypes.c_int)),
        *(("device_id", _text), ("caps", ctypes.c_bool * 16)),
    )


_props = declare(_base, "ggml_backend_dev_get_props", [_pointer, ctypes.POINTER(_Props)], None)


@dataclass(frozen=True, slots=True)
class Device:
    """One device. `handle` is ggml's pointer; `id` identifies the hardware, or is None if the backend does not know."""

    handle: int
    name: str
    description: str
    kind: str
    backend: str
    id: str | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU, which layers can be offloaded to."""
        return self.kind in (KINDS[_GPU], KINDS[_INTEGRATED])

    @property
    def shares_main_memory(self) -> bool:
        """Whether the device's memory is main memory, as for CPUs, integrated GPUs and Apple's GPUs."""
        return self.kind != KINDS[_GPU] or self.backend in _UNIFIED

    @property
    def memory(self) -> tuple[int, int]:
        """Free and total memory in bytes; 0 if the backend does not know."""
        free, total = _size(), _size()
        _memory(self.handle, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value


def device_of(handle: int) -> Device:
    """Describe the device behind a ggml pointer."""
    return Device(
        handle,
        _name(handle).decode("utf-8", "replace"),
        _description(handle).decode("utf-8", "replace"),
        KINDS[_type(handle)],
        _reg_name(_reg_of(handle)).decode(),
    )


def local_devices() -> list[Device]:
    """Return this machine's devices, in ggml's order."""
    devices = [device for device in map(device_of, map(_get, range(_count()))) if device.backend != _RPC]
    return [replace(device, id=_hardware_id(device.handle)) for device in devices]


def _hardware_id(handle: int) -> str | None:
    props = _Props()
    _props(handle, ctypes.byref(props))
    return props.device_id.decode() if props.device_id else None


def default_devices(local: Sequence[Device]) -> list[Device]:
    """Return the devices that get layers by default: the discrete GPUs, else the first backend's integrated GPUs.

    A GPU that several backends see counts once, as the first backend's.
    """
    discrete: list[Device] = []
    for device in local:
        is_duplicate = device.id is not None and device.id in [other.id for other in discrete]
        if device.kind == KINDS[_GPU] and not is_duplicate:
            discrete.append(device)
    integrated = [device for device in local if device.kind == KINDS[_INTEGRATED]]
    return discrete or [device for device in integrated if device.backend == integrated[0].backend]


def registry(backend: str) -> int | None:
    """Return ggml's pointer to a backend's registry; None if this build lacks the backend."""
    pointer: int | None = _reg_by_name(backend.encode())
    return pointer


def has_rpc() -> bool:
    """Return whether this build can use RPC servers."""
    return registry(_RPC) is not None


def select_devices(names: Sequence[str], available: Sequence[Device]) -> list[Device]:
    """Return the GPUs with these names, in their order; ValueError for a name that `available` lacks."""
    by_name = {device.name: device for device in available if device.is_gpu}
    for name in names:
        if name not in by_name:
            seen = ", ".join(by_name) or "none but the CPU"
            raise ValueError(f"devices has {name!r}; this build sees {seen} (`via-sd-local doctor` lists them)")
    return [by_name[name] for name in names]
