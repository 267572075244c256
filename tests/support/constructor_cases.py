"""Ways to construct llama-cpp-python's class and ours, and what must then be the same: plain data for two processes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

TEXT = "the sea and the land, and on it the sand and the sand of the sea and the land of it, and on it"
ASCII = {3 + byte: -1000.0 for byte in range(128, 256)}  # the original runs past max_tokens within a character
LLAMA, GEMMA, REAL, INFILL = "llama", "gemma3", "real", "infill"  # the models: files of these names


@dataclass(frozen=True, slots=True)
class Construction:
    """Arguments of the constructor; `model` names the file, and `call` has further arguments of the completion.

    `$` stands for the folder of the files.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    model: str = LLAMA
    call: dict[str, Any] = field(default_factory=dict)


def _made(name: str, model: str = LLAMA, call: dict[str, Any] | None = None, **options: Any) -> Construction:
    return Construction(name, options, model, call or {})


_YARN = {"rope_scaling_type": 2, "rope_freq_scale": 0.25, "yarn_orig_ctx": 128}
_QUANTISED = {"type_k": 8, "type_v": 8, "flash_attn": True}
CONSTRUCTIONS = [
    _made("defaults"),
    _made("a real vocabulary", REAL),
    _made("a context that is no multiple of 256", n_ctx=100),
    _made("the trained context", n_ctx=0),
    _made("small batches", n_batch=16, n_ubatch=8),
    _made("a batch larger than the context", n_ctx=256, n_batch=4096, n_ubatch=2048),
    _made("threads", n_threads=1, n_threads_batch=2),
    _made("a seed", seed=42),
    _made("seed 0", seed=0),
    _made("all logits", logits_all=True),
    _made("embeddings", embedding=True, call={"embed": True}),
    _made("the mean of embeddings", embedding=True, pooling_type=1, call={"embed": True}),
    _made("the last embedding", embedding=True, pooling_type=3, call={"embed": True}),
    _made("causal attention", attention_type=0),
    _made("no offloading of the cache", offload_kqv=False),
    _made("flash attention", flash_attn=True),
    _made("operations stay on the CPU", op_offload=False),
    _made("linear scaling", rope_scaling_type=1, rope_freq_scale=0.5),
    _made("no scaling", rope_scaling_type=0, rope_freq_scale=0.5),
    _made("another base", rope_freq_base=2500.0),
    _made("another scale", rope_freq_scale=0.7),
    _made("YaRN", **_YARN),
    _made("YaRN's extrapolation", **_YARN, yarn_ext_factor=0.5),
    _made("YaRN's attention", **_YARN, yarn_ext_factor=1.0, yarn_attn_factor=1.7),
    _made("YaRN's corrections", **_YARN, yarn_ext_factor=1.0, yarn_beta_fast=8.0, yarn_beta_slow=4.0),
    _made("a quantised cache", **_QUANTISED),
    _made("a cache of floats", type_k=0, type_v=0),
    _made("no measuring", no_perf=True),
    _made("a short window of penalties", last_n_tokens_size=3, call={"repeat_penalty": 1.9, "max_tokens": 24}),
    _made("a long window of penalties", last_n_tokens_size=64, call={"repeat_penalty": 1.9, "max_tokens": 24}),
    _made("a LoRA adapter", lora_path="$/lora.gguf"),
    _made("a LoRA adapter, scaled", lora_path="$/lora.gguf", lora_scale=0.25, lora_base=None),
    _made("no mapping", use_mmap=False),
    _made("locked weights", use_mlock=True),
    _made("locked and read weights", use_mlock=True, use_mmap=False),
    _made("overrides", kv_overrides={"tokenizer.ggml.add_bos_token": False, "llama.rope.freq_base": 700.0}),
    _made("an override of a whole number", n_ctx=0, kv_overrides={"llama.context_length": 320}),
    _made("an override of a text", kv_overrides={"tokenizer.ggml.pre": "default"}),
    _made("the vocabulary alone", vocab_only=True),
    _made("all layers on GPUs", n_gpu_layers=-1),
    _made("some layers on GPUs", n_gpu_layers=2, split_mode=0, main_gpu=0),
    _made("shares", tensor_split=[1.0], split_mode=2),
    _made("no NUMA", numa=False),
    _made("no NUMA by number", numa=0),
    _made("a chat format", chat_format="chatml", call={"chat": True}),
    _made("another chat format", chat_format="llama-2", call={"chat": True}),
    _made("the file's chat template", REAL, call={"chat": True}),
    _made("a chat handler", chat_handler="handler", call={"chat": True}),
    _made("a tokenizer", REAL, tokenizer="tokenizer"),
    _made("a draft model", draft_model="lookup", call={"max_tokens": 24}),
    _made("a sliding window", GEMMA),
    _made("a sliding window of full size", GEMMA, swa_full=True),
    _made("a sliding window that forgets", GEMMA, swa_full=False),
    _made("infilling", INFILL, call={"suffix": " the land"}),
    _made("infilling, suffix first", INFILL, call={"suffix": " the land"}, spm_infill=True),
    _made("quiet", verbose=False),
    _made("a missing file", "absent"),
    _made("an unknown chat format", chat_format="nonesuch", call={"chat": True}),
    _made("too many shares", tensor_split=[1.0] * 999),
    _made("an override of an unknown kind", kv_overrides={"general.name": [1]}),
    _made("a quantised V without flash attention", type_v=8),
]


def construct(case: Construction, llama_cpp: Any, cls: Any, folder: Path, **more: Any) -> Any:
    """An object of `cls`, with what is named made."""
    options: dict[str, Any] = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, "verbose": False}
    options |= case.options
    if "lora_path" in options:
        options["lora_path"] = options["lora_path"].replace("$", str(folder))
    if "draft_model" in options:
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        options["draft_model"] = LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=3)
    if "chat_handler" in options:

        def handler(*, llama: Any, messages: Any, **_others: Any) -> Any:
            return llama.create_completion(messages[-1]["content"][::-1], temperature=0.0, max_tokens=4)

        options["chat_handler"] = handler
    if "tokenizer" in options:
        from llama_cpp.llama_tokenizer import LlamaTokenizer

        class Shouting(LlamaTokenizer):
            def __init__(self, llama: Any) -> None:
                super().__init__(llama)
                self.owner = llama  # a model that nobody holds is freed

            def detokenize(self, *args: Any, **kwargs: Any) -> bytes:
                return bytes(super().detokenize(*args, **kwargs)).upper()

        vocabulary = llama_cpp.Llama(str(folder / f"{case.model}.gguf"), vocab_only=True, verbose=False)
        options["tokenizer"] = Shouting(vocabulary)
    return cls(str(folder / f"{case.model}.gguf"), **options, **more)


def observe(llm: Any, case: Construction, llama_cpp: Any) -> dict[str, Any]:
    """What the object says and does."""
    call = dict(case.call)
    tokens = llm.tokenize(TEXT.encode(), add_bos=True)
    seen: dict[str, Any] = {
        "tokens": tokens,
        "n_ctx": llm.n_ctx(),
        "n_batch": llm.n_batch,
        "n_vocab": llm.n_vocab(),
        "threads": [llm.n_threads, llm.n_threads_batch],
        "metadata": len(llm.metadata),
        "parameters": _fields(llm.context_params) | _fields(llm.model_params),
    }
    if llm.model_params.vocab_only:
        return seen
    if call.pop("embed", False):
        seen["embedding"] = np.ravel(llm.embed(TEXT))[:64].tolist()
    if call.pop("chat", False):
        answer = llm.create_chat_completion([{"role": "user", "content": TEXT}], temperature=0.0, max_tokens=8)
        choice = answer["choices"][0]
        seen["chat"] = choice.get("message") or choice["text"]
    llm.reset()
    llm.eval(tokens)
    logits = llama_cpp.llama_cpp.llama_get_logits_ith(llm._ctx.ctx, -1)
    seen["logits"] = np.ctypeslib.as_array(logits, shape=(llm.n_vocab(),))[:64].tolist()
    if case.options.get("logits_all"):
        seen["scores"] = llm.scores[: len(tokens), :8].tolist()
    llm.reset()
    bias = ASCII if case.model != REAL else None
    answer = llm(TEXT, temperature=0.0, logit_bias=bias, **{"max_tokens": 12, **call})
    choice = answer["choices"][0]
    counts = {name: n for name, n in answer["usage"].items() if name != "via_sd"}
    seen |= {"text": choice["text"], "finish_reason": choice["finish_reason"], "usage": counts}
    return seen


def _fields(struct: Any) -> dict[str, Any]:
    """The plain numbers of a parameter struct."""
    values = ((name, getattr(struct, name)) for name, *_ in struct._fields_)
    return {name: value for name, value in values if isinstance(value, (bool, int, float)) and "callback" not in name}


def outcome(case: Construction, llama_cpp: Any, cls: Any, folder: Path, **more: Any) -> dict[str, Any]:
    """What `observe` sees, or the kind of error that ends the attempt."""
    try:
        llm = construct(case, llama_cpp, cls, folder, **more)
        try:
            return observe(llm, case, llama_cpp)
        finally:
            llm.close()
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"error": kinds[0], "kinds": kinds, "said": str(error)}


def main() -> None:
    """The folder and the cases' names on stdin as JSON, the original's outcomes on stdout."""
    import json
    import sys
    import warnings

    from via_sd_local import binding

    warnings.simplefilter("ignore")
    llama_cpp = binding.import_llama_cpp("llama")
    assert llama_cpp.Llama.__module__ == "llama_cpp.llama"
    task = json.load(sys.stdin)
    folder = Path(task["folder"])
    cases = {case.name: case for case in CONSTRUCTIONS}
    found = {name: outcome(cases[name], llama_cpp, llama_cpp.Llama, folder) for name in task["cases"]}
    json.dump(found, sys.stdout, default=float)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
