"""LlamaIndex on this package, with a MODEL.gguf.

First `pip install llama-index-core`, then `pip install --no-deps llama-index-llms-llama-cpp`: with its dependencies it
would compile llama-cpp-python, which nobody needs here.
"""

from __future__ import annotations

import sys

import via_sd_local

via_sd_local.install()  # from here on, `from llama_cpp import Llama` gives ours, to LlamaIndex, too

from llama_index.core.llms import ChatMessage  # noqa: E402
from llama_index.llms.llama_cpp import LlamaCPP  # noqa: E402


def main(model: str) -> None:
    """Complete a prompt, then chat as a stream."""
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
