"""Completions and chat completions of the drop-in, as response dicts or streams of chunks."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..sampling.factory import make_sampler
from . import chat_completion
from .arguments import (
    read_callbacks,
    read_logprobs,
    read_max_tokens,
    read_sampling,
    read_stops,
    read_whole,
    warn_without_effect,
)
from .low_level import LowLevel
from .original import Original
from .overrides import is_overridden, warn_not_called
from .prompt import read_prompt
from .request import CompletionRequest
from .responses import Envelope, usage_of
from .text_watcher import TextDelta

_CHAT_SIGNATURE = inspect.signature(Original.create_chat_completion)


class Completions(LowLevel):
    """Text completions on the engine; chat completions by llama-cpp-python's chat handlers, which call the former."""

    def create_completion(
        self,
        prompt: str | Sequence[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | int | Sequence[str | int] | None = (),
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        stopping_criteria: Any = None,
        logits_processor: Any = None,
        grammar: Any = None,
        logit_bias: Mapping[Any, float] | None = None,
        stream_options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Complete a text or a token sequence; returns a response dict, or an iterator of chunks with `stream`.

        `max_tokens` None or below 0 runs to the end of the context, 0 generates nothing. `stop` takes strings and
        token ids; the text ends before the stop that begins first. `stream_options={"include_usage": True}` ends a
        stream with a chunk that carries the usage. `usage["via_sd"]` holds the statistics of the run. Raises
        ValueError or TypeError for invalid arguments, at the call also for a stream.
        """
        runner = self._active_runner
        streams_usage = chat_completion.includes_usage(stream_options, stream)
        warn_without_effect(tfs_z=(tfs_z, 1.0))
        warn_not_called(self, LowLevel, ("generate", "eval", "sample", "reset"), "create_completion")
        processors, criteria = read_callbacks(logits_processor, stopping_criteria)
        stops, stop_tokens = read_stops(stop)
        sampling = read_sampling(
            locals(), temperature=temperature, penalty_last_n=self.last_n_tokens_size, n_vocab=self.n_vocab()
        )
        with self._turns.using():
            make_sampler(runner.model, sampling).close()  # a grammar that does not parse is an error at the call
            request = CompletionRequest(
                read_prompt(self, prompt, suffix),
                sampling,
                processors,
                read_max_tokens(max_tokens),
                stops,
                stop_tokens,
                criteria,
                read_logprobs(logprobs),
                echo,
                read_whole("seed", seed),
                self._detokenizer,
                self.load_state if is_overridden(self, LowLevel, "load_state") else None,
                self.save_state if is_overridden(self, LowLevel, "save_state") else None,
            )
        runner.check(request)
        envelope = Envelope(model or self.model_path, logprobs=logprobs is not None, streams_usage=streams_usage)
        if stream:
            return self._stream(request, envelope, streams_usage)
        deltas: list[TextDelta] = []
        for step in runner.answer(request, pauses=False):
            deltas += step.deltas
        return envelope.response(deltas, step.reason, self._usage(request, step.stats))

    def _stream(self, request: CompletionRequest, envelope: Envelope, with_usage: bool) -> Iterator[dict[str, Any]]:
        with contextlib.closing(self._active_runner.answer(request, pauses=True)) as steps:
            for step in steps:
                for delta in step.deltas:
                    yield envelope.chunk(delta)
        usage = self._usage(request, step.stats)
        yield envelope.last_chunk(step.reason)
        if with_usage:
            yield envelope.usage_chunk(usage)

    def _usage(self, request: CompletionRequest, stats: dict[str, Any] | None) -> dict[str, Any]:
        usage = usage_of(stats or {}, len(request.prompt.tokens))
        chat_completion.note_usage(usage)
        return usage

    def __call__(self, prompt: str | Sequence[int], *args: Any, **kwargs: Any) -> Any:
        """Call `create_completion`."""
        return self.create_completion(prompt, *args, **kwargs)

    def create_chat_completion(self, *args: Any, stream_options: Mapping[str, Any] | None = None, **kwargs: Any) -> Any:
        """Answer a conversation with the model's chat format; the arguments are llama-cpp-python's.

        In addition, `stream_options` works as in `create_completion`, `response_format` may be of type `json_schema`,
        and `logprobs` needs no `top_logprobs`.
        """
        arguments = _CHAT_SIGNATURE.bind(self, *args, **kwargs).arguments
        messages = arguments["messages"]
        arguments["messages"] = messages = messages if isinstance(messages, str) else [*messages]
        if not all(isinstance(message, Mapping) for message in messages):
            raise TypeError(
                f'messages is {messages!r:.80}; it must be a list like [{{"role": "user", "content": "…"}}]'
            )
        del arguments["self"]
        if self._message_text is not None:
            arguments["messages"] = self._message_text.mark(messages)
        arguments = {name: value for name, value in arguments.items() if value is not None}  # None is the default
        chat_completion.apply_response_format(arguments, to_grammar=self.chat_handler is None)
        if arguments.get("logprobs") and arguments.get("top_logprobs") is None:
            arguments["top_logprobs"] = 0
        if chat_completion.includes_usage(stream_options, arguments.get("stream", False)):
            return chat_completion.with_usage(lambda: super(Completions, self).create_chat_completion(**arguments))
        return super().create_chat_completion(**arguments)
