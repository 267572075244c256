"""Messages to prompt tokens, by the model's own chat template or a given one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import jinja2

from .binding import import_llama_cpp
from .errors import ModelError
from .model import Model


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
        return self._model.tokenize_prompt(self.text(messages), parse_special=True)

    def text(self, messages: Sequence[Message]) -> str:
        """The prompt as text; ModelError if the template refuses."""
        try:
            prompt: str = self._render(messages=list(messages)).prompt
        except Exception as error:  # a template is code, and may fail in any way
            raise ModelError(f"the chat template cannot render this conversation: {error}") from None
        return prompt
