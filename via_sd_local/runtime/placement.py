"""Where a model's weights and KV cache lie, and how attention is computed: plain values, without the native library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

ALL_LAYERS = -1
SPLIT_MODES: Mapping[str, int] = MappingProxyType({"none": 0, "layer": 1, "row": 2, "tensor": 3})  # llama_split_mode
FLASH_ATTN: Mapping[str, int] = MappingProxyType({"auto": -1, "off": 0, "on": 1})  # llama_flash_attn_type
CACHE_TYPES: Mapping[str, int] = MappingProxyType(  # ggml_type; the types that llama.cpp's attention can read
    {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2, "q4_1": 3, "iq4_nl": 20, "q5_0": 6, "q5_1": 7}
)
_QUANTISED = frozenset(name for name in CACHE_TYPES if "q" in name)
MAX_GPU_LAYERS = 1 << 20
MAX_RPC_SERVERS = 16  # GGML_RPC_MAX_SERVERS


@dataclass(frozen=True, slots=True)
class Placement:
    """How one model is spread over this machine's devices and those of RPC servers.

    `n_gpu_layers` is the number of layers to offload from the CPU, the last ones first (-1: all; no effect without a
    GPU). `devices` names the devices to use, as `via-sd-local doctor` lists them (empty: the servers' devices, then
    every local GPU). `tensor_split` gives each device's share of the layers, in any unit (empty: by free memory).
    `main_gpu` is the index of the device that gets the whole model if `split_mode` is `none`. `type_k` and `type_v` are
    the number formats of the KV cache. `flash_attn` `auto` leaves the choice to llama.cpp on devices and is off on a
    CPU, where flash attention gets slower the longer the text is (unless the cache is quantised). `offload_kqv` keeps
    the KV cache on the devices. `rpc_servers` are `host:port`; their traffic is neither encrypted nor authenticated.
    """

    n_gpu_layers: int = ALL_LAYERS
    main_gpu: int = 0
    tensor_split: tuple[float, ...] = ()
    split_mode: str = "layer"
    devices: tuple[str, ...] = ()
    flash_attn: str = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    offload_kqv: bool = True
    use_mmap: bool = True
    use_mlock: bool = False
    rpc_servers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for unknown names and for numbers out of range."""
        for name, value, choices in (
            ("split_mode", self.split_mode, SPLIT_MODES),
            ("flash_attn", self.flash_attn, FLASH_ATTN),
            ("type_k", self.type_k, CACHE_TYPES),
            ("type_v", self.type_v, CACHE_TYPES),
        ):
            if value not in choices:
                raise ValueError(f"{name} is {value!r}; it is one of {', '.join(choices)}")
        if not ALL_LAYERS <= self.n_gpu_layers <= MAX_GPU_LAYERS:
            raise ValueError(f"n_gpu_layers is {self.n_gpu_layers}; give a number of layers, or -1 for all of them")
        if self.main_gpu < 0:
            raise ValueError(f"main_gpu is {self.main_gpu}; devices are counted from 0")
        for share in self.tensor_split:
            if not 0 <= share < float("inf"):
                raise ValueError(f"tensor_split has {share}; a share is a finite number that is at least 0")
        if self.tensor_split and not any(self.tensor_split):
            raise ValueError("tensor_split is all zeros; at least one device must get layers")
        if self.type_v in _QUANTISED and self.flash_attn == "off":
            raise ValueError(
                f"type_v is {self.type_v!r} with flash_attn 'off'; a quantised V cache requires flash_attn"
            )
        if self.split_mode == "tensor" and self.flash_attn == "off":
            raise ValueError("split_mode is 'tensor' with flash_attn 'off'; splitting tensors requires flash_attn")
        if len(self.rpc_servers) > MAX_RPC_SERVERS:
            raise ValueError(
                f"rpc_servers has {len(self.rpc_servers)} entries; llama.cpp takes at most {MAX_RPC_SERVERS}"
            )
        for server in self.rpc_servers:
            check_endpoint(server)
        if len(set(self.rpc_servers)) < len(self.rpc_servers):
            raise ValueError("rpc_servers names a server twice; name each server once")

    @property
    def load_mode(self) -> int:
        """Value for llama.cpp's `load_mode`; -1 lets it choose, which maps the file if possible."""
        if self.use_mlock:
            return 3 if self.use_mmap else 2
        return -1 if self.use_mmap else 0

    def flash_attn_type(self, n_devices: int) -> int:
        """Return the `llama_flash_attn_type` for a model on the CPU and `n_devices` other devices."""
        plain = n_devices == 0 and not {self.type_k, self.type_v} & _QUANTISED
        return FLASH_ATTN["off" if plain and self.flash_attn == "auto" else self.flash_attn]


DEFAULT = Placement()


def check_endpoint(text: str) -> None:
    """Raise ValueError unless the text has the form `host:port`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or ":" in host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"rpc_servers has {text!r}; a server is host:port, e.g. 192.168.1.20:50052 (no IPv6)")


def parse_list(text: str) -> tuple[str, ...]:
    """Return the non-empty words of a list such as `a,b,c`."""
    return tuple(word for part in text.split(",") if (word := part.strip()))


def parse_shares(text: str) -> tuple[float, ...]:
    """Return the numbers of a list such as `3,1` or `3/1`; ValueError if one is not a number."""
    try:
        return tuple(float(word) for word in parse_list(text.replace("/", ",")))
    except ValueError:
        raise ValueError(f"tensor_split is {text!r}; it is a list of numbers like 3,1") from None
