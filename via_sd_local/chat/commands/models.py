"""`/model`: go on with another model."""

from __future__ import annotations

from collections.abc import Iterator

from ...catalog.fetching import fetch_missing
from ..chat import Chat
from ..overview import mode_text
from ..sampling_text import describe
from ..switches import Switches
from .command import Command


def _model(chat: Chat, argument: str) -> None:
    dialogue = chat.dialogue
    if argument:
        settings = chat.switches.with_model(argument)
        fetch_missing(settings.verifier, settings.draft)
        settings.resolve()  # refuses most of what cannot be loaded before the present model is given up
        dialogue.change_model(settings, chat.display.working)
        chat.switches = Switches(settings)
    name, sampling = dialogue.session.model.path.name, describe(dialogue.sampling.params)
    chat.display.note(f"({name}, mode {mode_text(chat)}, {sampling})")


def _model_completions(argument: str) -> Iterator[str]:
    from ...catalog.inventory import listing

    return (entry.name for entry in listing() if entry.path and entry.name.startswith(argument))


MODEL = Command(
    "/model",
    "[MODEL]",
    "show the model, or go on with another one: a name, a .gguf file or hf:…; the conversation stays",
    _model,
    _model_completions,
)
