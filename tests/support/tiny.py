"""Tiny random GGUF models, written on the fly, and the edits that turn one into the oracle of a layer mask.

Tensors are drawn by name, so two specs with one seed share every tensor of the same name and shape, and a longer
vocabulary begins with the rows of a shorter one. Names and shapes follow llama.cpp's src/models/*.cpp; an array
[n_out, n_in] here is llama.cpp's {n_in, n_out}.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Literal
from zlib import crc32

import numpy as np
import numpy.typing as npt
from gguf import GGUFValueType, GGUFWriter
from tiny_vocab import Metadata, Vocab, vocabulary

Kind = Literal["full", "swa", "ssm"]  # what a layer's token mixer is: global or sliding-window attention, or Mamba
Tensors = dict[str, npt.NDArray[np.float32] | npt.NDArray[np.float16]]

_SWA_PERIOD = {"gemma2": 2, "gemma3": 6}  # llama_hparams::set_swa_pattern(): the last layer of each period is global
_ATTN_PERIOD = {"jamba": 3}  # our choice: every third layer of the hybrid is attention
_SSM = {"conv_kernel": 4, "state_size": 16, "time_step_rank": 4}
_SUBLAYER = {  # the tensors whose sum is the sublayer's output
    "attn": ("attn_output.weight", "attn_output.bias", "ssm_out.weight"),
    "ffn": ("ffn_down.weight", "ffn_down.bias", "ffn_down_exps.weight"),
}


@dataclass(frozen=True, slots=True)
class Spec:
    """A tiny model's hyperparameters; `spec(name)` makes one that loads."""

    arch: str = "llama"
    n_layer: int = 6
    n_embd: int = 64
    n_head: int = 4
    n_head_kv: int = 2
    n_ff: int = 96
    n_vocab: int = 320
    n_expert: int = 0
    sliding_window: int = 16
    n_ctx_train: int = 512
    residual: float = (
        1.0  # scale of every sublayer's output; smaller: a masked model agrees with the full one more often
    )
    seed: int = 0
    dtype: Literal["F32", "F16"] = "F32"
    kinds: tuple[Kind, ...] | None = None  # of each layer, written to the file; None: what the architecture implies

    @property
    def layer_kinds(self) -> tuple[Kind, ...]:
        """The kind of every layer, as llama.cpp will see it."""
        if self.kinds is not None:
            return self.kinds
        if self.arch == "mamba":
            return ("ssm",) * self.n_layer
        other: Kind = "ssm" if self.arch in _ATTN_PERIOD else "swa"
        period = (_ATTN_PERIOD | _SWA_PERIOD).get(self.arch, 1)
        return tuple("full" if il % period == period - 1 else other for il in range(self.n_layer))

    def layers(self, kind: Kind) -> list[int]:
        """The layers of one kind."""
        return [il for il, other in enumerate(self.layer_kinds) if other == kind]


SPECS: dict[str, Spec] = {
    "llama": Spec(),
    "llama-moe": Spec(n_expert=4),
    "qwen2": Spec("qwen2"),
    "qwen3": Spec("qwen3"),
    "qwen3moe": Spec("qwen3moe", n_expert=4),
    "phi3": Spec("phi3"),
    "gemma": Spec("gemma"),
    "gemma2": Spec("gemma2"),
    "gemma3": Spec("gemma3", n_layer=12),  # global: 5 and 11
    "mamba": Spec("mamba", n_head=0, n_head_kv=0, n_ff=0),
    "jamba": Spec("jamba"),  # attention: 2 and 5
}


def spec(name: str, **changes: object) -> Spec:
    """The named model, with some fields changed."""
    return replace(SPECS[name], **changes)  # type: ignore[arg-type]


def random_tensors(spec: Spec) -> Tensors:
    """All tensors of the model by GGUF name: each sublayer adds about as much to the residual stream as a token."""
    made: Tensors = {}

    def draw(name: str, *shape: int, std: float, mean: float = 0.0) -> None:
        noise = np.random.default_rng([spec.seed, crc32(name.encode())]).standard_normal(shape, dtype=np.float32)
        value = mean + std * noise
        half = spec.dtype == "F16" and len(shape) > 1 and not re.search(r"ssm_(a|conv1d)|gate_inp", name)
        made[name] = value.astype(np.float16 if half else np.float32)

    scaled_embd = spec.arch.startswith("gemma")  # their graphs multiply the embedding by sqrt(n_embd)
    draw("token_embd.weight", spec.n_vocab, spec.n_embd, std=1 / sqrt(spec.n_embd) if scaled_embd else 1.0)
    draw("output_norm.weight", spec.n_embd, std=0.1, mean=2.0 if scaled_embd else 1.0)
    if not scaled_embd:  # else tied
        draw("output.weight", spec.n_vocab, spec.n_embd, std=2 / sqrt(spec.n_embd))
    for il, kind in enumerate(spec.layer_kinds):
        _draw_layer(spec, f"blk.{il}.", kind, draw)
    return made


def _draw_layer(spec: Spec, prefix: str, kind: Kind, draw: Callable[..., None]) -> None:
    n_embd, n_ff, arch = spec.n_embd, spec.n_ff, spec.arch

    def linear(name: str, *shape: int, gain: float = 1.0) -> None:
        draw(f"{prefix}{name}.weight", *shape, std=gain / sqrt(shape[-1]))

    def norm(name: str, n: int, mean: float = 1.0) -> None:
        draw(f"{prefix}{name}.weight", n, std=0.1 * mean, mean=mean)

    norm("attn_norm", n_embd)
    if kind == "ssm":
        _draw_mamba(spec, prefix, linear, norm, draw)
    else:
        n_rot = n_embd // spec.n_head
        n_kv = spec.n_head_kv * n_rot
        if arch == "phi3":
            linear("attn_qkv", n_embd + 2 * n_kv, n_embd, gain=1.5)
        else:
            linear("attn_q", n_embd, n_embd, gain=1.5)
            linear("attn_k", n_kv, n_embd, gain=1.5)
            linear("attn_v", n_kv, n_embd, gain=1.5)
        if arch == "qwen2":
            for name, n in (("attn_q", n_embd), ("attn_k", n_kv), ("attn_v", n_kv)):
                draw(f"{prefix}{name}.bias", n, std=0.5)
        if arch in ("qwen3", "qwen3moe", "gemma3"):
            norm("attn_q_norm", n_rot, 1.5)
            norm("attn_k_norm", n_rot, 1.5)
        linear("attn_output", n_embd, n_embd, gain=spec.residual)

    if arch in ("gemma2", "gemma3"):  # these norms undo any scale of the projections before them
        norm("post_attention_norm", n_embd, spec.residual)
        norm("post_ffw_norm", n_embd, spec.residual)
    if arch == "mamba":
        return
    norm("ffn_norm", n_embd)
    if spec.n_expert:
        linear("ffn_gate_inp", spec.n_expert, n_embd)
        linear("ffn_gate_exps", spec.n_expert, n_ff, n_embd, gain=1.5)
        linear("ffn_up_exps", spec.n_expert, n_ff, n_embd, gain=1.5)
        linear("ffn_down_exps", spec.n_expert, n_embd, n_ff, gain=spec.residual)
    elif arch == "phi3":
        linear("ffn_up", 2 * n_ff, n_embd, gain=1.5)
        linear("ffn_down", n_embd, n_ff, gain=spec.residual)
    else:
        linear("ffn_gate", n_ff, n_embd, gain=1.5)
        linear("ffn_up", n_ff, n_embd, gain=1.5)
        linear("ffn_down", n_embd, n_ff, gain=spec.residual)


def _draw_mamba(
    spec: Spec,
    prefix: str,
    linear: Callable[..., None],
    norm: Callable[..., None],
    draw: Callable[..., None],
) -> None:
    n_embd, n_inner = spec.n_embd, 2 * spec.n_embd
    n_conv, n_state, n_rank = _SSM["conv_kernel"], _SSM["state_size"], _SSM["time_step_rank"]
    linear("ssm_in", 2 * n_inner, n_embd)
    draw(f"{prefix}ssm_conv1d.weight", n_inner, n_conv, std=0.5)
    draw(f"{prefix}ssm_conv1d.bias", n_inner, std=0.1)
    linear("ssm_x", n_rank + 2 * n_state, n_inner, gain=2.0)
    linear("ssm_dt", n_inner, n_rank)
    draw(f"{prefix}ssm_dt.bias", n_inner, std=0.5, mean=-1.0)
    draw(f"{prefix}ssm_a", n_inner, n_state, std=0.1, mean=-1.0)  # negative: the state decays
    draw(f"{prefix}ssm_d", n_inner, std=0.1, mean=1.0)
    linear("ssm_out", n_embd, n_inner, gain=2 * spec.residual)
    if spec.arch == "jamba":
        norm("ssm_dt_norm", n_rank)
        norm("ssm_b_norm", n_state)
        norm("ssm_c_norm", n_state)


def without_layers(tensors: Mapping[str, np.ndarray], spec: Spec, layers: Collection[int]) -> tuple[Tensors, Spec]:
    """The model without some layers, the rest renumbered; each keeps its kind, whatever its new index."""
    kept = [il for il in range(spec.n_layer) if il not in layers]
    renamed = {f"blk.{old}": f"blk.{new}" for new, old in enumerate(kept)}
    rest: Tensors = {}
    for name, value in tensors.items():
        block = re.match(r"blk\.\d+", name)
        if block is None:
            rest[name] = value
        elif block[0] in renamed:
            rest[renamed[block[0]] + name[block.end() :]] = value
    return rest, replace(spec, n_layer=len(kept), kinds=tuple(spec.layer_kinds[il] for il in kept))


def without_sublayer(
    tensors: Mapping[str, np.ndarray], spec: Spec, layer: int, part: Literal["attn", "ffn"]
) -> Tensors:
    """The model with one sublayer's output projection, and its bias, zeroed. Raises KeyError where there is none."""
    names = {f"blk.{layer}.{name}" for name in _SUBLAYER[part]} & tensors.keys()
    if not names:
        raise KeyError(f"layer {layer} of a {spec.arch} model has no {part} output")
    return {name: np.zeros_like(value) if name in names else value for name, value in tensors.items()}


def metadata(spec: Spec) -> Metadata:
    """The hyperparameters' GGUF keys."""
    keys: Metadata = {
        "context_length": spec.n_ctx_train,
        "embedding_length": spec.n_embd,
        "block_count": spec.n_layer,
        "feed_forward_length": spec.n_ff,
        "attention.head_count": spec.n_head,
        "attention.head_count_kv": spec.n_head_kv,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    if spec.arch == "jamba":  # no KV heads: a recurrent layer
        keys["attention.head_count_kv"] = [0 if kind == "ssm" else spec.n_head_kv for kind in spec.layer_kinds]
    if "ssm" in spec.layer_kinds:
        keys |= {f"ssm.{key}": value for key, value in _SSM.items()}
        keys["ssm.inner_size"] = 2 * spec.n_embd
    elif spec.n_head:
        n_rot = spec.n_embd // spec.n_head
        keys |= {"attention.key_length": n_rot, "attention.value_length": n_rot, "rope.dimension_count": n_rot}
    if spec.n_expert:
        keys |= {"expert_count": spec.n_expert, "expert_used_count": 2, "expert_feed_forward_length": spec.n_ff}
    if spec.arch in _SWA_PERIOD:
        keys["attention.sliding_window"] = spec.sliding_window
        if spec.kinds is not None:
            keys["attention.sliding_window_pattern"] = [kind == "swa" for kind in spec.kinds]
    if spec.arch == "gemma2":
        keys |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    if spec.arch == "gemma3":
        keys |= {"rope.freq_base": 1e6, "rope.freq_base_swa": 1e4}
    return {"general.name": "tiny"} | {f"{spec.arch}.{key}": value for key, value in keys.items()}


def write(
    path: Path,
    spec: Spec,
    tensors: Mapping[str, np.ndarray] | None = None,
    *,
    vocab: Vocab | None = None,
    overrides: Mapping[str, bool | int | float | str | list[int] | None] | None = None,
) -> Path:
    """Write the model and return its path.

    tensors: None draws them; {} writes a file of metadata and vocabulary alone.
    vocab: None is `vocabulary(spec.n_vocab)`; another one must have spec.n_vocab tokens, else ValueError.
    overrides: full metadata keys to set, or with None to leave out.
    """
    vocab = vocabulary(spec.n_vocab) if vocab is None else vocab
    if len(vocab) != spec.n_vocab:
        raise ValueError(f"vocab has {len(vocab)} tokens, spec.n_vocab is {spec.n_vocab}; make them agree")
    keys = {"general.architecture": spec.arch} | metadata(spec) | vocab.metadata() | dict(overrides or {})
    writer = GGUFWriter(path, str(keys.pop("general.architecture")))
    for key, value in keys.items():
        if value is not None:
            writer.add_key_value(key, value, _value_type(value))
    for name, value in (random_tensors(spec) if tensors is None else tensors).items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _value_type(value: object) -> GGUFValueType:
    if isinstance(value, int) and not isinstance(value, bool):
        return GGUFValueType.UINT32  # gguf would say INT32, which llama.cpp refuses for a scalar
    return GGUFValueType.get_type(value)


def write_truncated(path: Path, spec: Spec) -> Path:
    """A file whose header promises more tensor data than follows."""
    write(path, spec)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def write_unknown_arch(path: Path, spec: Spec) -> Path:
    """A sound GGUF file of an architecture that llama.cpp does not know."""
    return write(path, spec, overrides={"general.architecture": "nonesuch"})


def write_text(path: Path) -> Path:
    """A file that is not GGUF."""
    path.write_text("This is not a GGUF file.\n" * 100, encoding="utf-8")
    return path


def write_empty(path: Path) -> Path:
    """A file of no bytes."""
    path.write_bytes(b"")
    return path
