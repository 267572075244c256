"""Runs cases on llama-cpp-python's own class: the model's path and case names on stdin as JSON, the answers on stdout.

A process of its own, so that nothing of ours can get into it but the library.
"""

from __future__ import annotations

import json
import os
import sys
import warnings

import parity_cases


def main() -> None:
    from via_sd_local import binding

    llama_cpp = binding.import_llama_cpp("llama")
    assert llama_cpp.Llama.__module__ == "llama_cpp.llama"
    task = json.load(sys.stdin)
    cases = {case.name: case for case in parity_cases.CASES}
    llm = llama_cpp.Llama(
        task["model"], n_ctx=512, n_threads=1, n_threads_batch=1, logits_all=True, verbose=False, seed=1
    )
    answers = {}
    for name in task["cases"]:
        case = cases[name]
        llm.reset()
        answer = getattr(llm, case.method)(**parity_cases.arguments(case.options, llama_cpp))
        answers[name] = answer if isinstance(answer, dict) else list(answer)
    answers["n_ctx"] = llm.n_ctx()
    json.dump(answers, sys.stdout, default=float)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
