"""Response dicts and stream chunks of completions, in the form of the OpenAI API."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Any

from .logprobs import as_columns
from .text_watcher import TextDelta


class Envelope:
    """Builds the dicts of one completion, which share an id, a time and a model name."""

    def __init__(self, model: str, *, logprobs: bool, streams_usage: bool = False) -> None:
        """Set the model name; with `streams_usage` every chunk has a `usage`, None in all but the last chunk."""
        self._head = {
            "id": f"cmpl-{uuid.uuid4()}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._logprobs = logprobs
        self._tail: dict[str, Any] = {"usage": None} if streams_usage else {}

    def _columns(self, deltas: Iterable[TextDelta]) -> dict[str, Any] | None:
        return as_columns(entry for delta in deltas for entry in delta.entries) if self._logprobs else None

    def _with_choice(self, text: str, logprobs: dict[str, Any] | None, reason: str | None) -> dict[str, Any]:
        choice = {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}
        return {**self._head, "choices": [choice], **self._tail}

    def chunk(self, delta: TextDelta) -> dict[str, Any]:
        """Return the stream chunk for the text of one token."""
        return self._with_choice(delta.text, self._columns([delta]), None)

    def last_chunk(self, reason: str | None) -> dict[str, Any]:
        """Return the chunk that ends a stream with a finish reason."""
        return self._with_choice("", None, reason)

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Return the chunk without choices that reports the usage after the end of a stream."""
        return {**self._head, "choices": [], "usage": usage}

    def response(self, deltas: list[TextDelta], reason: str | None, usage: dict[str, Any]) -> dict[str, Any]:
        """Return the response of a call without a stream."""
        text = "".join(delta.text for delta in deltas)
        return {**self._with_choice(text, self._columns(deltas), reason), "usage": usage}


def usage_of(stats: dict[str, Any], prompt_tokens: int) -> dict[str, Any]:
    """Return OpenAI's token counts, with the statistics of the run under `via_sd`."""
    completion = stats["completion_tokens"]
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt_tokens + completion,
        "via_sd": stats,
    }
