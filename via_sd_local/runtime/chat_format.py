"""Turns chat messages into prompt tokens with a Jinja chat template.

Only the template may produce control tokens. Control tokens typed in a message, such as `<|im_end|>`, are treated as
plain text; otherwise a message could end its own turn and continue in another role.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Any, TypedDict

import jinja2

from ..binding import import_llama_cpp
from ..errors import ModelError
from .literals import any_of
from .model import Model

# noncharacters, which Unicode reserves for internal use: they mark a message's text to find it in the prompt
_BEGIN, _END = "\ufdd0", "\ufdd1"
_SLOW = 20_000_000  # characters times control tokens; about 0.1 s
_MARKED = re.compile(f"{_BEGIN}([^{_BEGIN}{_END}]*){_END}")
_PROBES = ("probe", "another")  # messages


def _without_tools() -> Iterator[dict[str, Any]]:
    """Yield what templates are given where there are no tools; they disagree about what that is.

    None is what transformers gives, undefined what llama.cpp does. Firefunction also wants the time of day, of which
    the date must do: a prompt that changes every second could never be continued from the cache.
    """
    yield {"tools": None, "functions": None}
    yield {"tools": jinja2.Undefined(), "functions": jinja2.Undefined()}
    yield {"tools": [], "functions": "", "datetime": f"{datetime.now():%b %d %Y}"}


class Message(TypedDict):
    """One turn of a conversation; `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


class ChatFormat:
    """Renders conversations into prompt tokens that end with the opening of the assistant's next turn."""

    def __init__(self, model: Model, template: str | None = None) -> None:
        """Use `template`, or the one in the model's file; ModelError if there is none or it cannot be parsed."""
        template = model.chat_template if template is None else template
        if template is None:
            raise ModelError(f"{model.path}: the file has no chat template; give one with --chat-template FILE")
        self._model = model
        self.template = template

        def text_of(token: int) -> str:
            return model.token_text(token).decode("utf-8", "replace") if token >= 0 else ""

        formatter = import_llama_cpp("llama_chat_format").Jinja2ChatFormatter
        try:
            self._render = formatter(template, eos_token=text_of(model.eos), bos_token=text_of(model.bos))
        except jinja2.TemplateError as error:
            raise ModelError(f"the chat template cannot be parsed: {error}") from None
        self._check_insertion()

    def _check_insertion(self) -> None:
        """Raise ModelError for a template that leaves messages out, such as a text that is no template."""
        try:
            one, other = (self.text([Message(role="user", content=text)]) for text in _PROBES)
        except ModelError:
            return  # it may demand what this conversation lacks
        if one == other:
            raise ModelError(
                "the chat template leaves out the messages; a Jinja template inserts them, e.g. with "
                "{{ messages[0].content }}"
            )

    def tokens(self, messages: Sequence[Message]) -> list[int]:
        """Return the prompt's token ids, with exactly one BOS if the model wants one.

        A system message goes to the beginning of the first user message if the template has no place for it. Raises
        ModelError if the template cannot render the messages.
        """
        messages = self._folded(messages)
        prompt = self.text(messages)
        has_control = any(self._control.search(message["content"]) for message in messages)
        if not (has_control or self._is_slow(len(prompt))):
            return self._model.tokenize_prompt(prompt, parse_special=True)
        spans = self._content_spans(messages, prompt)
        if spans is not None:
            return self._with_control_tokens_outside(prompt, spans)
        if not has_control:
            return self._model.tokenize_prompt(prompt, parse_special=True)
        # the template rewrites the messages, so they cannot be located in the prompt: a zero-width space after the
        # first character keeps each control text in them from being tokenised as a control token
        defused = [message.copy() for message in messages]
        for message in defused:
            message["content"] = self._control.sub(
                lambda match: f"{match[0][0]}\u200b{match[0][1:]}", message["content"]
            )
        return self._model.tokenize_prompt(self.text(defused), parse_special=True)

    def text(self, messages: Sequence[Message]) -> str:
        """Return the prompt as text; ModelError if the template cannot render the messages."""
        return self._rendered(self._folded(messages))

    def _rendered(self, messages: Sequence[Message]) -> str:
        """Render messages as they are.

        The first of `_without_tools` that the template can be rendered with is taken.
        """
        first_error: Exception | None = None
        for variables in _without_tools():
            try:
                prompt: str = self._render(messages=list(messages), **variables).prompt
                return prompt
            except Exception as error:  # a template is code and may raise anything
                first_error = first_error or error
        raise ModelError(f"the chat template cannot render this conversation: {first_error}")

    def _folded(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Put a system message before the first user message's text, unless the template takes system messages."""
        if len(messages) < 2 or (messages[0]["role"], messages[1]["role"]) != ("system", "user"):
            return messages
        if self._takes_system:
            return messages
        text = "\n\n".join(message["content"] for message in messages[:2] if message["content"].strip())
        return [{"role": "user", "content": text}, *messages[2:]]

    @cached_property
    def _takes_system(self) -> bool:
        """Whether a system message changes the prompt, or the template cannot be tried with a user's message alone."""
        system, user = (
            Message(role=role, content=text) for role, text in zip(("system", "user"), _PROBES, strict=True)
        )
        try:
            alone = self._rendered([user])
        except ModelError:
            return True
        try:
            return self._rendered([system, user]) != alone
        except ModelError:
            return False

    def _is_slow(self, n_chars: int) -> bool:
        """Whether llama.cpp would take long to look for control tokens: it searches the text for each of them."""
        return n_chars * len(self._model.control_texts) > _SLOW

    @cached_property
    def _control(self) -> re.Pattern[str]:
        """Pattern of the texts that would be tokenised as control tokens; it matches nothing if there are none."""
        return any_of(self._model.control_texts)

    def _content_spans(self, messages: Sequence[Message], prompt: str) -> list[tuple[int, int]] | None:
        """Return the (begin, end) of each message's text in the prompt.

        None if the template does more than insert them, so that their places are unknown.
        """
        marked = [message.copy() for message in messages]
        for message in marked:
            text = message["content"]
            if _BEGIN in text or _END in text:
                return None
            core = text.strip()  # templates may trim whitespace
            if core:
                message["content"] = text.replace(core, f"{_BEGIN}{core}{_END}", 1)
        try:
            rendered = self._rendered(marked)
        except ModelError:
            return None
        spans: list[tuple[int, int]] = []
        for number, match in enumerate(_MARKED.finditer(rendered)):
            begin = match.start() - 2 * number  # without the marks before it
            spans.append((begin, begin + len(match[1])))
        return spans if _MARKED.sub(r"\1", rendered) == prompt else None

    def _with_control_tokens_outside(self, prompt: str, spans: Sequence[tuple[int, int]]) -> list[int]:
        """Return the token ids of a prompt in which control tokens inside `spans` are plain text.

        The text between two of the template's own control tokens is tokenised in one piece, as llama.cpp does.
        """
        tokens: list[int] = []
        own = [
            match.span()
            for (_, begin), (end, _) in pairwise([(0, 0), *spans, (len(prompt), len(prompt))])
            for match in self._control.finditer(prompt, begin, end)
        ]
        start = 0  # of the text that is not tokenised yet
        for (_, begin), (end, _) in pairwise([(0, 0), *own, (len(prompt), len(prompt))]):
            if self._control.search(prompt, begin, end) or self._is_slow(end - begin):
                tokens += self._model.tokenize(prompt[start:begin], add_special=False, parse_special=True)
                tokens += self._model.tokenize(prompt[begin:end], add_special=False)
                start = end
        tokens += self._model.tokenize(prompt[start:], add_special=False, parse_special=True)
        needs_bos = self._model.adds_bos and tokens[:1] != [self._model.bos]
        return [self._model.bos, *tokens] if needs_bos else tokens
