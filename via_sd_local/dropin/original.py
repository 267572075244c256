"""The classes of the vendored llama-cpp-python that the drop-in builds on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..binding import import_llama_cpp

if TYPE_CHECKING:
    from llama_cpp.llama import Llama as Original
    from llama_cpp.llama import LlamaState
    from llama_cpp.llama_cache import BaseLlamaCache
    from llama_cpp.llama_tokenizer import BaseLlamaTokenizer, LlamaTokenizer
else:
    Original = import_llama_cpp("llama").Llama
    LlamaState = import_llama_cpp("llama").LlamaState
    BaseLlamaCache = import_llama_cpp("llama_cache").BaseLlamaCache
    BaseLlamaTokenizer = import_llama_cpp("llama_tokenizer").BaseLlamaTokenizer
    LlamaTokenizer = import_llama_cpp("llama_tokenizer").LlamaTokenizer

__all__ = ["BaseLlamaCache", "BaseLlamaTokenizer", "LlamaState", "LlamaTokenizer", "Original"]
