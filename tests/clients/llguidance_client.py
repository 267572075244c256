"""An answer that llguidance constrains; arguments: a model, and options of `Llama` as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import via_sd_local

via_sd_local.install()

import llama_cpp  # noqa: E402
import llguidance  # noqa: E402
import llguidance.llamacpp  # noqa: E402
import llguidance.numpy  # noqa: E402

llm = llama_cpp.Llama(sys.argv[1], n_ctx=256, n_threads=1, verbose=False, **json.loads(sys.argv[2]))
tokenizer = llguidance.llamacpp.lltokenizer_from_vocab(llm._model.vocab)
matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_regex(r"[a-z]{3,5} [0-9]{4}"))
lengths: list[int] = []


def constrain(ids: Any, scores: Any) -> Any:
    """Feed the matcher the token since the last call, and keep the tokens that it permits."""
    if lengths and not matcher.consume_token(int(ids[-1])):
        raise ValueError(matcher.get_error())
    lengths.append(len(ids))
    mask = llguidance.numpy.allocate_token_bitmask(1, tokenizer.vocab_size)
    llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
    llguidance.numpy.apply_token_bitmask_inplace(scores, mask)
    return scores


answer = llm("the sea", max_tokens=30, temperature=0.0, logits_processor=[constrain])
print(json.dumps({"answers": [answer["choices"][0]["text"]], "drafted": llm.last_stats["drafted"]}))
