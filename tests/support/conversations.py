"""For the tests of the chat: conversations with a tiny model.

Test files take the fixtures as `name = conversations.name`: ruff takes an imported fixture for an unused name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny

from via_sd_local.chat.chat import Chat
from via_sd_local.chat.conversation import Conversation
from via_sd_local.chat.dialogue import Dialogue
from via_sd_local.chat.display import Display
from via_sd_local.chat.loop import greet, talk
from via_sd_local.chat.opening import OpenModel
from via_sd_local.chat.shade import Shade
from via_sd_local.chat.switches import Switches
from via_sd_local.runtime.chat_format import ChatFormat, Message
from via_sd_local.sampling.recommended import ChosenSampling
from via_sd_local.session.session import Session
from via_sd_local.session.settings import Settings
from via_sd_local.session.text_steps import Piece

LLAMA = tiny.spec("llama")
TEMPLATE = (
    "{% if 'forbidden' in messages[-1].content %}"
    "{{ raise_exception('refused: ' ~ messages[-1].content | replace('\n', ' / ')) }}"
    "{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
)
GREEDY = ChosenSampling()


class Recorder(ChatFormat):
    """A chat format that remembers the messages that it rendered last, and their tokens."""

    messages: list[Message]
    prompt: list[int]

    def tokens(self, messages: Any) -> list[int]:
        self.messages = list(messages)
        self.prompt = super().tokens(messages)
        return self.prompt


class Recording(Display):
    """A display that remembers what it was told to show, in order."""

    can_color = True

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str]] = []
        self.legends: list[Mapping[Shade, float]] = []
        self.colors = False

    def note(self, text: str) -> None:
        self.said.append(("note", text))

    def error(self, text: str) -> None:
        self.said.append(("error", text))

    def show(self, text: str) -> None:
        self.said.append(("show", text))

    def begin(self, *, colors: bool = False) -> None:
        self.colors = colors
        self.answer = ""

    def push(self, pieces: Sequence[Piece]) -> None:
        self.answer += "".join(piece.text for piece in pieces)

    def end(self, *, stopped: bool = False) -> None:
        self.said.append(("colored" if self.colors else "answer", self.answer + (" [stopped]" if stopped else "")))

    def legend(self, shares: Mapping[Shade, float]) -> None:
        self.legends.append(shares)

    def of(self, kind: str) -> list[str]:
        """What was shown in this way."""
        return [text for said, text in self.said if said == kind]


class Lines:
    """A reader of given messages; an exception among them is raised; then the input ends."""

    def __init__(self, messages: Sequence[str | BaseException]) -> None:
        self._messages = list(messages)

    def read(self) -> str:
        if not self._messages:
            raise EOFError
        message = self._messages.pop(0)
        if isinstance(message, BaseException):
            raise message
        return message


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with TEMPLATE."""
    path = tmp_path_factory.mktemp("chat") / "tiny.gguf"
    return tiny.write(path, LLAMA, overrides={"tokenizer.chat_template": TEMPLATE})


@pytest.fixture
def talking(tiny_path: Path, keep: Callable[[Any], Any]) -> Callable[..., Dialogue]:
    """`talking(system="…", n_ctx=256)` begins a conversation with the tiny model."""

    def make(system: str | None = None, n_ctx: int = 256, max_tokens: int | None = 5, **options: Any) -> Dialogue:
        options.setdefault("draft_tokens", 3)
        session = Session(Settings(str(tiny_path), n_ctx=n_ctx, threads=1, **options))
        dialogue = Dialogue(OpenModel(session, Recorder(session.model)), Conversation(system), GREEDY, max_tokens)
        keep(dialogue)
        return dialogue

    return make


Talking = Callable[..., Dialogue]


def ask(dialogue: Dialogue, text: str, notes: list[str] | None = None) -> str:
    """The whole answer."""
    note = (lambda text: None) if notes is None else notes.append
    return "".join(piece.text for pieces in dialogue.answer(text, note=note) for piece in pieces)


def converse(dialogue: Dialogue, *messages: str | BaseException) -> tuple[Chat, Recording]:
    """A chat in which these messages were written, without a terminal."""
    display = Recording()
    chat = Chat(dialogue, display, Switches(dialogue.session.settings))
    greet(chat)
    assert talk(chat, Lines(messages)) == 0
    return chat, display
