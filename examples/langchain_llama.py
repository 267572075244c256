"""LangChain on this package: `pip install langchain-community`, then this file with a MODEL.gguf."""

from __future__ import annotations

import sys

import via_sd_local

via_sd_local.install()  # from here on, `from llama_cpp import Llama` gives ours, to LangChain, too

from langchain_community.llms import LlamaCpp  # noqa: E402


def main(model: str) -> None:
    """Answer a prompt at once, then as a stream."""
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
