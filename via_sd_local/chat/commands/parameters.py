"""`/set` and `/show`: the sampling parameters, and everything that is in force."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ...sampling.params import SamplingParams
from ..chat import Chat
from ..overview import overview
from ..sampling_text import describe
from .command import Command
from .turns import SYSTEM

_WHOLE = {"top_k", "penalty_last_n", "mirostat_mode", "seed"}
_NAMES = [
    field.name.removesuffix("_mode")
    for field in fields(SamplingParams)
    if field.name not in ("logit_bias", "grammar", "json_schema")
] + ["max_tokens"]
_OTHER_NAMES = {"temp": "temperature", "mirostat_mode": "mirostat", "num_predict": "max_tokens"}


def _set(chat: Chat, argument: str) -> None:
    words = argument.removeprefix("parameter ").split(maxsplit=1)
    if not words:
        _show_sampling(chat)
        return
    typed, text = words[0], words[1] if len(words) > 1 else ""
    if typed == "system":
        SYSTEM.run(chat, text.strip('"'))
        return
    name = typed.lower().replace("-", "_")
    name = _OTHER_NAMES.get(name, name)
    if name in ("n_ctx", "num_ctx"):
        raise ValueError(f"{typed} cannot change while a model is loaded; start the chat with --n-ctx N")
    if name not in _NAMES:
        raise ValueError(f"there is no parameter {typed}; /set knows {', '.join(_NAMES)}")
    if not text:
        raise ValueError(f"/set {typed} needs a value: a number, or default")
    if name == "max_tokens":
        chat.dialogue.max_tokens = _max_tokens(typed, text)
    else:
        field = "mirostat_mode" if name == "mirostat" else name
        value = None if text == "default" else _number(typed, text, whole=field in _WHOLE)
        try:
            chat.dialogue.sampling = chat.dialogue.sampling.with_value(field, value)
        except ValueError as error:
            raise ValueError(str(error).replace(f"{field} ", f"{typed} ", 1)) from None
    _show_sampling(chat)


def _number(typed: str, text: str, *, whole: bool) -> Any:
    try:
        return int(text) if whole else float(text)
    except ValueError:
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{typed} is {text!r}; it must be {kind}, or default") from None


def _max_tokens(typed: str, text: str) -> int | None:
    number = 512 if text == "default" else _number(typed, text, whole=True)
    if number < -1 or number == 0:
        raise ValueError(f"{typed} is {number}; it must be a number of tokens, or -1 (to the end of the context)")
    return None if number == -1 else number


def _show_sampling(chat: Chat) -> None:
    limit = chat.dialogue.max_tokens
    chat.display.note(f"({describe(chat.dialogue.sampling.params)}, max-tokens {-1 if limit is None else limit})")


def _show(chat: Chat, argument: str) -> None:
    if argument in _PARTS:
        chat.display.show(_PARTS[argument](chat))
    elif argument:
        raise ValueError(f"/show has no part {argument!r}; it has {', '.join(_PARTS)}, or all without an argument")
    else:
        chat.display.show("\n".join(overview(chat)))


def _system(chat: Chat) -> str:
    return chat.dialogue.conversation.system or "(no system message)"


def _template(chat: Chat) -> str:
    return chat.dialogue.form.template


_PARTS = {"system": _system, "template": _template}

SET = Command(
    "/set",
    "[NAME VALUE]",
    "show or set a sampling parameter, such as temperature, top_p, seed or max_tokens; the value default takes it back",
    _set,
    lambda argument: [name for name in _NAMES if name.startswith(argument)],
)
SHOW = Command(
    "/show",
    "[PART]",
    "show the model, the settings in force and where they come from; PART: system or template",
    _show,
    lambda argument: [part for part in _PARTS if part.startswith(argument)],
)
