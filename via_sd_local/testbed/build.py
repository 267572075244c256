"""Builds a testbed and its draft model as GGUF files, each complete or not at all."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ..arrays import Floats
from ..errors import ModelError
from ..files import replacing_path, temporary_path
from ..mask import LayerMask
from ..progress import byte_bar
from ..runtime.gguf_header import open_header
from .gguf_copy import ARRAY, FLOAT32, INT32, STRING, UINT32, GgufFile, NewTensor, Value, total_size, write_gguf
from .quantiser import block_size, file_type, quantise, size_bound
from .recipe import Dims, Layer, Matrix, Recipe, copies_mask, factor, padded, shape_of, split_name, stack

DRAFT_QUANT = "Q4_0"
COPIES_KEY = "via_sd.testbed.copies"  # int32 [copies]: the layers that the best mask skips; absent without copies
ORIGINALS_KEY = "via_sd.testbed.originals"  # int32 [layers]: the source's layer that each layer is, or copies
RECIPE_KEY = "via_sd.testbed.recipe"  # JSON: the fields of Recipe, the source's file name and its size in bytes
_LARGE = ("token_embd.weight", "output.weight")
_UNQUANTISED: dict[str, type[np.float16] | type[np.float32]] = {"F16": np.float16, "F32": np.float32}


@dataclass(frozen=True, slots=True)
class Testbed:
    """The files of a testbed, and its known best mask."""

    verifier: Path
    draft: Path
    mask: LayerMask

    __test__ = False  # pytest: this is not a test


def read_mask(path: Path) -> LayerMask:
    """Return the best mask of a testbed, from its metadata; raises ModelError for any other model."""
    with open_header(path) as header:
        if not header.has(RECIPE_KEY):
            raise ModelError(f"{path} is not a testbed; make one with `via-sd-local testbed build`")
        copies = header.numbers(COPIES_KEY) if header.has(COPIES_KEY) else []
        return LayerMask.of(header.number("llama.block_count"), attn=copies, ffn=copies)


def build(
    source: Path, recipe: Recipe, verifier: Path, draft: Path, *, force: bool = False, progress: bool = True
) -> Testbed:
    """Build both files; without `force`, files that exist and have the same recipe are kept.

    Raises ModelError if the source is not a plain llama model, the disk is full, or another file is in the verifier's
    place; ValueError if the recipe does not fit the source; NativeError if the quantiser fails.
    """
    for target in (verifier, draft):
        if target.exists() and target.samefile(source):
            raise ModelError(f"{target} is the source itself; name another file with --output")
    if verifier.absolute() == draft.absolute():
        raise ModelError(f"{verifier} is where the draft goes; name another file with --output")
    file_type(recipe.quant)
    file = GgufFile(source)
    dims = read_dims(file)
    wide = recipe.widened(dims, block_size(recipe.quant))
    layers = stack(dims.layers, recipe.copies, recipe.copies_from)
    recipe_text = json.dumps(recipe.to_json() | {"source": source.name, "source_bytes": source.stat().st_size})
    try:
        verifier.parent.mkdir(parents=True, exist_ok=True)
        if force or not _is_built(verifier, recipe_text):
            tensors = _plan(file, dims, wide, layers, recipe)
            metadata = _metadata(file, wide, layers, recipe, recipe_text)
            _write_verifier(verifier, metadata, tensors, recipe.quant, progress)
        if force or not draft.is_file():
            bound = size_bound(*_count(file), DRAFT_QUANT)
            _require_space(draft.parent, 0, bound)
            with replacing_path(draft) as part:
                quantise(source, part, DRAFT_QUANT, expected=bound, progress=progress)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(f"{verifier.parent} cannot be written ({reason}); name another file with --output") from error
    return Testbed(verifier, draft, copies_mask(layers))


#
# the source
#


def read_dims(file: GgufFile) -> Dims:
    """Read the source's dimensions; ModelError, with the reason, unless it is a plain llama model."""

    def refuse(why: str) -> ModelError:
        return ModelError(f"{file.path}: a testbed needs a plain llama model, and {why}; name another --source")

    def number(key: str, default: int | None = None) -> int:
        value = file.get(f"llama.{key}")
        value = default if value is None else value
        if not isinstance(value, int) or value < 1:
            raise refuse(f"this one's llama.{key} is {value!r}")
        return value

    architecture = file.get("general.architecture")
    if architecture != "llama":
        raise refuse(f"this one is {architecture}")
    if file.get("llama.expert_count"):
        raise refuse(f"this one has {file.get('llama.expert_count')} experts a layer")
    if (file.get("split.count") or 1) > 1:
        raise refuse("this file is only a part of one")
    embed, heads = number("embedding_length"), number("attention.head_count")
    kv_heads = number("attention.head_count_kv", heads)
    head_size = number("attention.key_length", embed // heads)
    if heads % kv_heads:
        raise refuse(f"this one has {heads} query heads for {kv_heads} KV heads")
    if number("attention.value_length", head_size) != head_size:
        raise refuse("this one's keys and values have different sizes")
    epsilon = file.get("llama.attention.layer_norm_rms_epsilon")
    if not isinstance(epsilon, float):
        raise refuse(f"this one's llama.attention.layer_norm_rms_epsilon is {epsilon!r}")
    dims = Dims(number("block_count"), embed, number("feed_forward_length"), heads, kv_heads, head_size)
    for name in file.names:
        _, role = split_name(name)
        shape = file.shape(name)
        if shape_of(role, dims, shape) != shape:
            raise refuse(f"this one's {name} has the shape {list(shape)}")
    return dims


def _count(file: GgufFile) -> tuple[int, int]:
    sizes = {name: int(np.prod(file.shape(name))) for name in file.names}
    return sum(sizes.values()), sum(sizes.get(name, 0) for name in _LARGE)


#
# the verifier
#


def _plan(file: GgufFile, dims: Dims, wide: Dims, layers: tuple[Layer, ...], recipe: Recipe) -> list[NewTensor]:
    """List the testbed's tensors: those outside the layers in the source's order, then layer by layer."""
    matrices = _UNQUANTISED.get(recipe.quant, np.float16)
    roles: dict[int | None, dict[str, str]] = {}  # layer → role → name in the source
    for name in file.names:
        original, role = split_name(name)
        roles.setdefault(original, {})[role] = name

    def tensor(name: str, origin: str, role: str, scale: float) -> NewTensor:
        shape = shape_of(role, wide, file.shape(origin))
        dtype = matrices if len(shape) > 1 else np.float32
        times = factor(role, dims, wide, scale)
        return NewTensor(name, shape, dtype, partial(_make, file, origin, shape, times, dtype))

    plan = [tensor(name, name, role, 1.0) for role, name in roles.get(None, {}).items()]
    for il, layer in enumerate(layers):
        scale = recipe.scale if layer.is_copy else 1.0
        for role, origin in roles.get(layer.original, {}).items():
            plan.append(tensor(role.replace("blk", f"blk.{il}", 1), origin, role, scale))
    return plan


def _make(
    file: GgufFile, origin: str, shape: tuple[int, ...], times: float, dtype: type[np.float16] | type[np.float32]
) -> Matrix:
    weights: Floats = file.floats(origin)
    return padded(weights, shape, times, dtype)


def _metadata(
    file: GgufFile, wide: Dims, layers: tuple[Layer, ...], recipe: Recipe, recipe_text: str
) -> dict[str, Value]:
    """Return the source's metadata with the testbed's dimensions, recipe and known best mask."""
    values = file.metadata()
    values.pop("general.size_label", None)
    source_embed = file.get("llama.embedding_length")
    numbers = {
        "block_count": wide.layers,
        "embedding_length": wide.embed,
        "feed_forward_length": wide.ffn,
        "attention.head_count": wide.heads,
        "attention.head_count_kv": wide.kv_heads,
        "attention.key_length": wide.head_size,  # else llama.cpp takes embed / heads
        "attention.value_length": wide.head_size,
        "rope.dimension_count": file.get("llama.rope.dimension_count") or wide.head_size,
    }
    values |= {f"llama.{key}": Value(number, UINT32) for key, number in numbers.items()}
    epsilon_key = "llama.attention.layer_norm_rms_epsilon"
    values[epsilon_key] = Value(file.get(epsilon_key) * source_embed / wide.embed, FLOAT32)
    values["general.name"] = Value(f"{file.get('general.name') or file.path.stem} testbed", STRING)
    values["general.file_type"] = Value(file_type(recipe.quant if recipe.quant in _UNQUANTISED else "F16"), UINT32)
    values[RECIPE_KEY] = Value(recipe_text, STRING)
    arrays = {
        COPIES_KEY: [il for il, layer in enumerate(layers) if layer.is_copy],
        ORIGINALS_KEY: [layer.original for layer in layers],
    }
    values |= {key: Value(items, ARRAY, INT32) for key, items in arrays.items() if items}
    return values


def _write_verifier(
    target: Path, metadata: dict[str, Value], tensors: list[NewTensor], quant: str, progress: bool
) -> None:
    """Write the tensors, unquantised, and let llama.cpp quantise the file."""
    plain = quant in _UNQUANTISED
    size = total_size(tensors)
    weights = {tensor.name: int(np.prod(tensor.shape)) for tensor in tensors}
    bound = size_bound(sum(weights.values()), sum(weights.get(name, 0) for name in _LARGE), quant)
    _require_space(target.parent, 0 if plain else size, size if plain else bound)
    with replacing_path(target) as part, temporary_path(target) as unquantised:
        output = part if plain else unquantised
        with byte_bar(size, f"writing {target.name}", progress) as bar:
            write_gguf(output, "llama", metadata, tensors, bar.advance)
        if not plain:
            quantise(output, part, quant, expected=bound, progress=progress)


def _is_built(target: Path, recipe_text: str) -> bool:
    """Whether the file is there and of this recipe; ModelError if there is another one."""
    if not target.exists():
        return False
    remedy = "overwrite it with --force, or name another file with --output"
    try:
        found = GgufFile(target).get(RECIPE_KEY) if target.is_file() else None
    except ModelError:  # not a GGUF, or cut short
        found = None
    if found != recipe_text:
        raise ModelError(f"{target} exists and is not what this command would build; {remedy}")
    return True


#
# files
#


def _require_space(folder: Path, passing: int, lasting: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < passing + lasting:
        raise ModelError(
            f"{(passing + lasting) / 1e9:.2f} GB are needed in {folder} ({passing / 1e9:.2f} of them only while "
            f"building) and its disk has {free / 1e9:.2f} GB free; free some, or name another place with --output"
        )
