"""Calls that llama-cpp-python's own class and ours must answer alike, as plain data for another process.

Callbacks and grammars are named, and made by `arguments`. Every argument of `create_completion` and
`create_chat_completion` occurs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PRIMARY = "The three primary colours are"
FRANCE = "The capital of France is"
STORY = "Once upon a time, in a small village by the sea,"
COUNT = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,"
DIGITS = 'root ::= " "? [0-9]+ ("," " " [0-9]+)*'
ANSWER = 'root ::= "yes" | "no" | "perhaps"'
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    },
}


@dataclass(frozen=True, slots=True)
class Case:
    """One call."""

    name: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)


def arguments(options: dict[str, Any], llama_cpp: Any) -> dict[str, Any]:
    """The options with callbacks and grammars made."""
    made = dict(options)
    if "grammar" in made:
        made["grammar"] = llama_cpp.LlamaGrammar.from_string(made["grammar"], verbose=False)
    if "logits_processor" in made:
        banned = made["logits_processor"]

        def ban(_ids: Any, scores: Any) -> Any:
            scores[banned] = -1e9
            return scores

        made["logits_processor"] = llama_cpp.LogitsProcessorList([ban])
    if "stopping_criteria" in made:
        length = made["stopping_criteria"]
        made["stopping_criteria"] = llama_cpp.StoppingCriteriaList([lambda ids, _logits: len(ids) >= length])
    return made


def _completion(name: str, prompt: Any = PRIMARY, **options: Any) -> Case:
    return Case(name, "create_completion", {"prompt": prompt, "temperature": 0.0, "max_tokens": 10, **options})


def _chat(name: str, *texts: str, **options: Any) -> Case:
    roles = ["user", "assistant"] * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts or ("Say hi.",), strict=False)]
    return Case(name, "create_chat_completion", {"messages": messages, "temperature": 0.0, "max_tokens": 8, **options})


COMPLETIONS = [
    _completion("greedy"),
    _completion("another prompt", FRANCE),
    _completion("a story", STORY, max_tokens=16),
    _completion("a text that repeats itself", COUNT, max_tokens=16),
    _completion("accents, CJK and an emoji", "Ein schöner Tag, 東京 und 🙂:", max_tokens=16),
    _completion("white space", "  \n\n "),
    _completion("one letter", "A"),
    _completion("special tokens in the text", "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"),
    _completion("token ids", [504, 1296, 3003, 359]),
    _completion("one token", max_tokens=1),
    _completion("to the end", FRANCE, max_tokens=-1, stop=["."]),
    _completion("no limit", FRANCE, max_tokens=None, stop="."),
    _completion("default arguments", top_k=1),
    _completion("echo", echo=True),
    _completion("a stop", STORY, stop=["the"], max_tokens=16),
    _completion("a stop as text", STORY, stop=",", max_tokens=16),
    _completion("stops, none of which comes", stop=["@@@", "%%%"]),
    _completion("no stops", stop=None),
    _completion("a stop of several tokens", COUNT, stop=[" 23, 24"], max_tokens=24),
    _completion("a stop at once", FRANCE, stop=[" "]),
    _completion("frequency penalty", COUNT, frequency_penalty=1.5, max_tokens=16),
    _completion("presence penalty", COUNT, presence_penalty=1.5, max_tokens=16),
    _completion("repeat penalty", COUNT, repeat_penalty=1.3, max_tokens=16),
    _completion("all penalties", STORY, repeat_penalty=1.1, frequency_penalty=0.5, presence_penalty=0.5),
    _completion("top k leaves one", temperature=0.8, top_k=1),
    _completion("top p leaves one", temperature=0.8, top_p=0.0),
    _completion("min p leaves one", temperature=0.8, min_p=1.0),
    _completion("typical p leaves one", temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, typical_p=1e-6),
    _completion("typical p of few", temperature=0.8, top_k=3, typical_p=1e-6),
    _completion("a high temperature with one candidate", temperature=2.0, top_k=1, seed=7),
    _completion("mirostat 1", temperature=0.8, mirostat_mode=1, mirostat_tau=0.0, mirostat_eta=0.1),
    _completion("mirostat 2", temperature=0.8, mirostat_mode=2, mirostat_tau=0.0, mirostat_eta=0.2),
    _completion("a seed", seed=1234),
    _completion("tail-free sampling at its default", tfs_z=1.0),
    _completion("a model's name", model="my-model"),
    _completion("stopping criteria", stopping_criteria=9),
    _completion("stopping criteria at once", stopping_criteria=1),
    _completion("a logits processor", FRANCE, logits_processor=[7042, 3269]),
    _completion("a grammar", COUNT, grammar=DIGITS, max_tokens=12),
    _completion("a grammar that ends", "Is water wet? Answer:", grammar=ANSWER),
    _completion("a logit bias", FRANCE, logit_bias={"7042": -100.0, "260": 3.0}),
    _completion("log-probabilities", FRANCE, logprobs=3, max_tokens=4),
    _completion("log-probabilities of the choice alone", FRANCE, logprobs=0, max_tokens=3),
    _completion("log-probabilities and a bias", FRANCE, logprobs=2, logit_bias={"7042": -100.0}, max_tokens=3),
    _completion("a stream", stream=True),
    _completion("a stream with a stop", STORY, stream=True, stop=["the"], max_tokens=16),
    _completion("a stream of CJK", "東京は", stream=True, max_tokens=16),
    _completion("a stream with log-probabilities", FRANCE, stream=True, logprobs=2, max_tokens=4),
    _completion("a stream with a grammar", COUNT, stream=True, grammar=DIGITS),
]
CHATS = [
    _chat("chat"),
    _chat("a question", "What is the capital of France?"),
    _chat("three turns", "My name is Ada.", "Hello Ada!", "What is my name?"),
    _chat("to the end of the answer", "Say only: ok", max_tokens=None, stop=["."]),
    _chat("a chat's stop", "Count to five.", stop=["3"], max_tokens=24),
    _chat("a chat's stream", "Name a colour.", stream=True),
    _chat("a chat's stream with a stop", "Count to five.", stream=True, stop=["3"], max_tokens=24),
    _chat("a chat's log-probabilities", logprobs=True, top_logprobs=2, max_tokens=3),
    _chat("a chat's penalties", repeat_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.3),
    _chat("a chat with one candidate", temperature=0.7, top_k=1, top_p=0.9, min_p=0.1, typical_p=1.0, seed=3),
    _chat("a chat with mirostat", temperature=0.7, mirostat_mode=2, mirostat_tau=0.0, mirostat_eta=0.1),
    _chat("a chat's other arguments", tfs_z=1.0, model="m", logit_bias={"1": -1.0}),
    _chat("a chat's logits processor", logits_processor=[25, 30]),
    _chat("JSON", "Give me JSON.", response_format={"type": "json_object"}, max_tokens=12),
    _chat("JSON by a schema", response_format={"type": "json_object", "schema": SCHEMA}, max_tokens=12),
    _chat("plain text as format", response_format={"type": "text"}),
    _chat("a chat's grammar", "Is water wet?", grammar=ANSWER),
    _chat("a tool", tools=[TOOL], tool_choice={"type": "function", "function": {"name": "weather"}}),
    _chat("tools, none chosen", tools=[TOOL], tool_choice="none"),
    _chat("a function", functions=[TOOL["function"]], function_call={"name": "weather"}),
    _chat(
        "a tool's stream",
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "weather"}},
        stream=True,
    ),
]
CASES = COMPLETIONS + CHATS
# a model with a vocabulary five times as large: the original sorts all of it for each log-probability
GEMMA = [
    case
    for case in CASES
    if case.name
    in {
        "greedy",
        "a story",
        "accents, CJK and an emoji",
        "a stop",
        "all penalties",
        "top k leaves one",
        "typical p of few",
        "log-probabilities",
        "a stream",
        "a stream of CJK",
        "a grammar",
        "chat",
        "three turns",
        "a chat's stream",
        "JSON by a schema",
    }
]
