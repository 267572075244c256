"""What chat completions need beyond llama-cpp-python's own chat handlers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..binding import import_llama_cpp

# usages of the completions that the chat completion in progress has made
_usages: ContextVar[list[dict[str, Any]] | None] = ContextVar("usages", default=None)


def note_usage(usage: dict[str, Any]) -> None:
    """Tell the chat completion around this completion, if there is one, what it used."""
    collected = _usages.get()
    if collected is not None:
        collected.append(usage)


@contextmanager
def _collecting(usages: list[dict[str, Any]]) -> Iterator[None]:
    token = _usages.set(usages)
    try:
        yield
    finally:
        _usages.reset(token)


def with_usage(make: Any) -> Iterator[dict[str, Any]]:
    """The chunks of the stream that `make()` begins, each with `usage` None, and one more with the usage of it all."""
    usages: list[dict[str, Any]] = []
    with _collecting(usages):
        chunks = iter(make())
    last: dict[str, Any] = {}
    try:
        while True:
            with _collecting(usages):
                chunk = next(chunks, None)
            if chunk is None:
                break
            last = chunk
            yield {**chunk, "usage": None}
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()
    yield {**last, "choices": [], "usage": total(usages)}


def total(usages: list[dict[str, Any]]) -> dict[str, Any]:
    """The sum of the counts, and the statistics of the last completion."""
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    summed: dict[str, Any] = {name: sum(usage[name] for usage in usages) for name in counts}
    return {**summed, "via_sd": usages[-1]["via_sd"]} if usages else summed


def read_response_format(response_format: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """OpenAI's `json_schema` as llama-cpp-python's `json_object` with a schema; ValueError for an unknown type."""
    if response_format is None:
        return None
    kind = response_format.get("type")
    if kind == "json_schema":
        described = response_format.get("json_schema")
        schema = described.get("schema") if isinstance(described, Mapping) else None
        if not isinstance(schema, Mapping):
            raise ValueError('response_format of type json_schema needs {"json_schema": {"schema": {…}}}')
        return {"type": "json_object", "schema": schema}
    if kind not in ("text", "json_object"):
        raise ValueError(f"response_format has type {kind!r}; it is text, json_object or json_schema")
    return response_format


def includes_usage(stream_options: Mapping[str, Any] | None, stream: bool) -> bool:
    """Whether a stream is to end with its usage; ValueError for options without a stream, or unknown ones."""
    if stream_options is None:
        return False
    if not stream:
        raise ValueError("stream_options is only for stream=True; without it the response has its usage anyway")
    if unknown := set(stream_options) - {"include_usage"}:
        raise ValueError(f"stream_options has {min(unknown)!r}; it knows include_usage")
    return bool(stream_options.get("include_usage"))


def one_bos_handler(handler_of: str, bos: str, eos: str, eos_id: int) -> Any:
    """The chat handler of a template, which gets a BOS from the tokenizer if the template does not write one."""
    chat_format = import_llama_cpp("llama_chat_format")

    class OneBos(chat_format.Jinja2ChatFormatter):  # type: ignore[misc,name-defined]
        def __call__(self, **arguments: Any) -> Any:
            response = super().__call__(**arguments)
            response.added_special = response.prompt.startswith(bos)
            return response

    return OneBos(template=handler_of, eos_token=eos, bos_token=bos, stop_token_ids=[eos_id]).to_chat_handler()
