"""LangChain with via_sd_local's `Llama`.

Install it with `pip install langchain-community`, then run `python examples/langchain_llama.py MODEL.gguf`.
"""

from __future__ import annotations

import sys

import via_sd_local

via_sd_local.install()  # from here on, LangChain's `from llama_cpp import Llama` imports via_sd_local's class

from langchain_community.llms import LlamaCpp  # noqa: E402


def main(model: str) -> None:
    """Complete one prompt at once and another one as a stream."""
    llm = LlamaCpp(
        model_path=model,
        n_ctx=512,
        max_tokens=24,
        temperature=0.0,
        stop=["\n"],
        verbose=False,
        n_threads=1,
        model_kwargs={"drafter": "lookup", "n_threads_batch": 1},
    )
    print(llm.invoke("The three primary colours are"))
    for piece in llm.stream("The capital of France is"):
        print(piece, end="", flush=True)
    print()
    print(type(llm.client).__module__, llm.client.last_stats["completion_tokens"])


if __name__ == "__main__":
    main(sys.argv[1])
