"""LlamaIndex with via_sd_local's `Llama`.

    pip install llama-index-core
    pip install --no-deps llama-index-llms-llama-cpp
    python examples/llama_index_llama.py MODEL.gguf

Without `--no-deps`, the second command would also compile llama-cpp-python, which is not needed.
"""

from __future__ import annotations

import sys

import via_sd_local

via_sd_local.install()  # from here on, LlamaIndex's `from llama_cpp import Llama` imports via_sd_local's class

from llama_index.core.llms import ChatMessage  # noqa: E402
from llama_index.llms.llama_cpp import LlamaCPP  # noqa: E402


def main(model: str) -> None:
    """Complete a prompt, then stream the answer to a chat message."""
    llm = LlamaCPP(
        model_path=model,
        context_window=512,
        max_new_tokens=24,
        temperature=0.0,
        model_kwargs={"drafter": "lookup", "n_threads": 1, "n_threads_batch": 1},
        verbose=False,
    )
    print(llm.complete("The three primary colours are").text)
    for piece in llm.stream_chat([ChatMessage(role="user", content="Say hi.")]):
        print(piece.delta, end="", flush=True)
    print()
    print(type(llm._model).__module__, llm._model.last_stats["completion_tokens"])


if __name__ == "__main__":
    main(sys.argv[1])
