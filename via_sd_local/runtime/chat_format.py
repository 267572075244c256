"""Messages to prompt tokens, by the model's own chat template or a given one.

Only the template may write control tokens: `<|im_end|>` in a message is text, or whoever writes one could end it and
speak in another role.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TypedDict

import jinja2

from ..binding import import_llama_cpp
from ..errors import ModelError
from .model import Model

# around a message's text while its place in the prompt is looked for; Unicode has these two for such purposes
_BEGIN, _END = "\ufdd0", "\ufdd1"
_MARKED = re.compile(f"{_BEGIN}([^{_BEGIN}{_END}]*){_END}")


class Message(TypedDict):
    """One turn; the role is `system`, `user` or `assistant`."""

    role: str
    content: str


class ChatFormat:
    """Renders a conversation, with the opening of the assistant's next turn, into tokens."""

    def __init__(self, model: Model, template: str | None = None) -> None:
        """Use `template`, else the file's own; ModelError if there is none or it cannot be parsed."""
        template = model.chat_template if template is None else template
        if template is None:
            raise ModelError(f"{model.path}: the file has no chat template; give one with --chat-template FILE")
        self._model = model

        def text_of(token: int) -> str:
            return model.token_text(token).decode("utf-8", "replace") if token >= 0 else ""

        formatter = import_llama_cpp("llama_chat_format").Jinja2ChatFormatter
        try:
            self._render = formatter(template, eos_token=text_of(model.eos), bos_token=text_of(model.bos))
        except jinja2.TemplateError as error:
            raise ModelError(f"the chat template cannot be parsed: {error}") from None

    def tokens(self, messages: Sequence[Message]) -> list[int]:
        """The prompt's tokens, with exactly one BOS where the model wants one; ModelError if the template refuses."""
        prompt = self.text(messages)
        if not any(self._control.search(message["content"]) for message in messages):
            return self._model.tokenize_prompt(prompt, parse_special=True)
        spans = self._content_spans(messages, prompt)
        if spans is not None:
            return self._with_control_tokens_outside(prompt, spans)
        # the template changes what it is given; an invisible space keeps such a text from being a control token
        broken = [message.copy() for message in messages]
        for message in broken:
            message["content"] = self._control.sub(
                lambda found: f"{found[0][0]}\u200b{found[0][1:]}", message["content"]
            )
        return self._model.tokenize_prompt(self.text(broken), parse_special=True)

    def text(self, messages: Sequence[Message]) -> str:
        """The prompt as text; ModelError if the template refuses."""
        try:
            prompt: str = self._render(messages=list(messages)).prompt
        except Exception as error:  # a template is code, and may fail in any way
            raise ModelError(f"the chat template cannot render this conversation: {error}") from None
        return prompt

    @cached_property
    def _control(self) -> re.Pattern[str]:
        """Any text that would be a control token; no text at all, if there are none."""
        return re.compile("|".join(map(re.escape, self._model.control_texts)) or r"(?!)")

    def _content_spans(self, messages: Sequence[Message], prompt: str) -> list[tuple[int, int]] | None:
        """Where in the prompt the messages' texts are; None if the template does more than to put them in."""
        marked = [message.copy() for message in messages]
        for message in marked:
            text = message["content"]
            if _BEGIN in text or _END in text:
                return None
            core = text.strip()  # templates may trim, too
            if core:
                message["content"] = text.replace(core, f"{_BEGIN}{core}{_END}", 1)
        try:
            rendered = self.text(marked)
        except ModelError:
            return None
        spans: list[tuple[int, int]] = []
        for number, found in enumerate(_MARKED.finditer(rendered)):
            begin = found.start() - 2 * number
            spans.append((begin, begin + len(found[1])))
        return spans if _MARKED.sub(r"\1", rendered) == prompt else None

    def _with_control_tokens_outside(self, prompt: str, spans: Sequence[tuple[int, int]]) -> list[int]:
        """The tokens of a prompt in which a control token's text is only text within these spans.

        Between two control tokens of the template, the text is tokenised as a whole, as llama.cpp does it.
        """
        tokens: list[int] = []
        own = [
            found.span()
            for (_, begin), (end, _) in pairwise([(0, 0), *spans, (len(prompt), len(prompt))])
            for found in self._control.finditer(prompt, begin, end)
        ]
        start = 0  # of what is not tokenised yet
        for (_, begin), (end, _) in pairwise([(0, 0), *own, (len(prompt), len(prompt))]):
            if self._control.search(prompt, begin, end):
                tokens += self._model.tokenize(prompt[start:begin], add_special=False, parse_special=True)
                tokens += self._model.tokenize(prompt[begin:end], add_special=False)
                start = end
        tokens += self._model.tokenize(prompt[start:], add_special=False, parse_special=True)
        needs_bos = self._model.adds_bos and tokens[:1] != [self._model.bos]
        return [self._model.bos, *tokens] if needs_bos else tokens
