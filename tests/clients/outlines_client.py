"""Answers that outlines constrains; arguments: a model, and options of `Llama` as JSON."""

from __future__ import annotations

import json
import sys
from typing import Literal

import via_sd_local

via_sd_local.install()

import llama_cpp  # noqa: E402
import outlines  # noqa: E402

llm = llama_cpp.Llama(sys.argv[1], n_ctx=256, n_threads=1, verbose=False, **json.loads(sys.argv[2]))
model = outlines.from_llamacpp(llm)
answers, drafted = [], 0
for kind in (outlines.regex(r"[A-Z][a-z]{3,8}, [0-9]{4}"), Literal["yes", "no"]):
    answers.append(model("the sea", kind, max_tokens=40, temperature=0.0))
    drafted += llm.last_stats["drafted"]
print(json.dumps({"answers": answers, "drafted": drafted}))
