"""Messages of the package in the words of the command line: options as they are typed, instead of parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

# parameters whose option has another name; all others are --NAME with hyphens
_OTHER: Mapping[str, str] = MappingProxyType(
    {
        "n_gpu_layers": "gpu-layers",
        "type_k": "cache-type-k",
        "type_v": "cache-type-v",
        "offload_kqv": "no-kv-offload",
        "use_mmap": "no-mmap",
        "use_mlock": "mlock",
        "mirostat_mode": "mirostat",
        "json_schema": "json-schema-file",
        "grammar": "grammar-file",
    }
)
_PLACEMENT = (
    *("n_gpu_layers", "main_gpu", "tensor_split", "split_mode", "devices", "flash_attn", "type_k", "type_v"),
    *("offload_kqv", "use_mmap", "use_mlock", "rpc_servers"),
)
# Words that occur in sentences, too, are taken for parameters only where a message names one: at its start, before
# " is …" and the like, and in parentheses.
_WORDS = (
    *("draft", "drafter", "mode", "profile", "mask", "thresholds", "threads", "devices", "temperature", "seed"),
    *("grammar", "minutes", "evaluations", "strategy", "host", "port", "embed", "ffn", "copies", "scale", "quant"),
    *("router", "remeasure"),
)
_NAMES = (
    *_PLACEMENT,
    *("draft_mask", "max_deviation", "draft_tokens", "n_ctx", "top_k", "top_p", "min_p", "typical_p", "max_tokens"),
    *("repeat_penalty", "frequency_penalty", "presence_penalty", "mirostat_mode", "json_schema", "skip_ratio"),
    *("answer_tokens", "kv_heads", "copies_from", "audit_every", "write_through"),
)
_ANY_NAME = re.compile(rf"(?<![\w/.'\"-])({'|'.join(name for name in _NAMES if '_' in name)})(?![\w/'\"-]|\.\w)")
_FIRST_WORD = re.compile(rf"^({'|'.join(_WORDS)})(?= is | has | are | and | item | names | '|: )")
_IN_PARENTHESES = re.compile(rf"\(({'|'.join(_WORDS)})(?=\)|,)")
_IN_A_LIST = re.compile(r"(?:(?<=and )|(?<=out )|(?<=, ))(minutes|evaluations)(?=,| are )")
_CHOICE = re.compile(r"\b(mode|drafter) '([\w+]+)'")
_OF_THE_DRAFT = "draft_placement: "


def as_typed(message: str, prefix: str = "") -> str:
    """Return a message with the options of the command line in place of the parameters that it names.

    `prefix` precedes the names of the placement's options: `draft-` for those of the draft model.
    """
    if message.startswith(_OF_THE_DRAFT):
        return as_typed(message.removeprefix(_OF_THE_DRAFT), "draft-")

    def option(match: re.Match[str]) -> str:
        name = match[1]
        before = prefix if name in _PLACEMENT else ""
        return f"--{before}{_OTHER.get(name, name.replace('_', '-'))}"

    message = _IN_A_LIST.sub(option, message)
    message = _CHOICE.sub(r"--\1 \2", message)
    message = _FIRST_WORD.sub(option, _ANY_NAME.sub(option, message))
    return _IN_PARENTHESES.sub(lambda match: f"({option(match)}", message)
