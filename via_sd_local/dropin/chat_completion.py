"""Chat completions beyond llama-cpp-python's own handlers: usage of streams, response formats, BOS in templates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..binding import import_llama_cpp
from ..sampling.json_schema import to_gbnf
from .original import Original

# usages of the completions that the current chat completion has run
_usages: ContextVar[list[dict[str, Any]] | None] = ContextVar("usages", default=None)


def note_usage(usage: dict[str, Any]) -> None:
    """Report the usage of a completion to the chat completion around it, if there is one."""
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


def with_usage(start: Callable[[], Any]) -> Iterator[dict[str, Any]]:
    """Yield the chunks of the stream that `start()` returns with `usage` None, then a chunk with the total usage."""
    usages: list[dict[str, Any]] = []
    with _collecting(usages):
        chunks = iter(start())
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
    """Return the sums of the token counts, with the statistics of the last completion."""
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    summed: dict[str, Any] = {name: sum(usage[name] for usage in usages) for name in counts}
    return {**summed, "via_sd": usages[-1]["via_sd"]} if usages else summed


def apply_response_format(arguments: dict[str, Any], *, to_grammar: bool) -> None:
    """Replace the argument `response_format`, if there is one, by the grammar that enforces it.

    Without `to_grammar` it stays, for a chat handler of the user's own, in llama-cpp-python's form: `json_object` with
    a schema. Raises ValueError for an unknown type, and for a schema with a keyword that a grammar cannot enforce.
    """
    response_format = arguments.get("response_format")
    if response_format is None:
        return
    schema = _read_schema(response_format)
    if schema is None:  # free text, or any JSON object, for which llama-cpp-python has a grammar
        return
    try:
        grammar = to_gbnf(schema)
    except ValueError as error:
        raise ValueError(f"response_format: {error}") from None
    if to_grammar:
        del arguments["response_format"]
        arguments["grammar"] = grammar
    elif response_format["type"] == "json_schema":
        arguments["response_format"] = {"type": "json_object", "schema": schema}


def _read_schema(response_format: Any) -> Mapping[str, Any] | str | None:
    """Return the JSON schema of a response format, None if it has none; ValueError for an unknown type."""
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if kind == "text":
        return None
    if kind == "json_object":
        schema: Mapping[str, Any] | str | None = response_format.get("schema")
        return schema
    if kind != "json_schema":
        raise ValueError(f"response_format has type {kind!r}; it must be text, json_object or json_schema")
    body = response_format.get("json_schema")
    schema = body.get("schema") if isinstance(body, Mapping) else None
    if not isinstance(schema, Mapping):
        raise ValueError('response_format of type json_schema needs {"json_schema": {"schema": {…}}}')
    return schema


def includes_usage(stream_options: Mapping[str, Any] | None, stream: bool) -> bool:
    """Return whether a stream ends with its usage; ValueError for options without a stream, or unknown options."""
    if stream_options is None:
        return False
    if not stream:
        raise ValueError("stream_options is only for stream=True; without a stream the response always has its usage")
    if unknown := set(stream_options) - {"include_usage"}:
        raise ValueError(f"stream_options has {min(unknown)!r}; the only option is include_usage")
    return bool(stream_options.get("include_usage"))


def add_bos_to_templates(llm: Original) -> None:
    """Give prompts from the file's chat templates exactly one BOS, where the model expects one."""
    if not llm._model.add_bos_token():
        return
    bos, eos = (llm._model.token_get_text(token) for token in (llm.token_bos(), llm.token_eos()))
    for name in llm._chat_handlers:
        key = "tokenizer.chat_template" if name == "chat_template.default" else f"tokenizer.{name}"
        template = llm.metadata.get(key) or llm.metadata.get(f"tokenizer.chat_template.{name}")
        if template is not None:
            llm._chat_handlers[name] = _one_bos_handler(template, bos, eos, llm.token_eos())


def _one_bos_handler(template: str, bos: str, eos: str, eos_id: int) -> Any:
    """Return the chat handler of a template; the tokenizer adds a BOS where the template does not write one."""
    chat_format = import_llama_cpp("llama_chat_format")

    class OneBos(chat_format.Jinja2ChatFormatter):  # type: ignore[misc,name-defined]
        def __call__(self, **arguments: Any) -> Any:
            response = super().__call__(**arguments)
            response.added_special = response.prompt.startswith(bos)
            return response

    return OneBos(template=template, eos_token=eos, bos_token=bos, stop_token_ids=[eos_id]).to_chat_handler()
