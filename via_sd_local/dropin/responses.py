"""The dicts that a completion returns, in the form of the OpenAI interface."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Any

from .logprobs import as_columns
from .text_watcher import TextDelta


class Envelope:
    """What all dicts of one completion share."""

    def __init__(self, model: str, *, logprobs: bool, streams_usage: bool = False) -> None:
        """`streams_usage`: chunks have a `usage`, which is None in all but the last one."""
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

    def _response(self, text: str, logprobs: dict[str, Any] | None, reason: str | None) -> dict[str, Any]:
        choice = {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}
        return {**self._head, "choices": [choice], **self._tail}

    def chunk(self, delta: TextDelta) -> dict[str, Any]:
        """A piece of a stream."""
        return self._response(delta.text, self._columns([delta]), None)

    def last_chunk(self, reason: str | None) -> dict[str, Any]:
        """The end of a stream."""
        return self._response("", None, reason)

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The usage after the end of a stream."""
        return {**self._head, "choices": [], "usage": usage}

    def whole(self, deltas: list[TextDelta], reason: str | None, usage: dict[str, Any]) -> dict[str, Any]:
        """The response of a call that does not stream."""
        text = "".join(delta.text for delta in deltas)
        return {**self._response(text, self._columns(deltas), reason), "usage": usage}


def usage_of(stats: dict[str, Any], prompt_tokens: int) -> dict[str, Any]:
    """OpenAI's counts, and ours under `via_sd`."""
    completion = stats["completion_tokens"]
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt_tokens + completion,
        "via_sd": stats,
    }
