"""Turns for models without a chat template."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from via_sd_local.chat.plain_turns import TEMPLATE, OneTurn
from via_sd_local.engine.watch import Flow
from via_sd_local.runtime.chat_format import ChatFormat
from via_sd_local.runtime.model import Model


def test_turns_are_named_and_the_models_own_begins(smollm2: Model) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Bye."},
    ]
    text = ChatFormat(smollm2, TEMPLATE).text(messages)
    assert text == "Be brief.\nUser: Hi.\nAssistant: Hello.\nUser: Bye.\nAssistant:"


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (" It is blue.\nUser: And why?", " It is blue.\n"),
        (" The User guide says:\nUse it.", " The User guide says:\nUse it."),
    ],
)
def test_an_answer_ends_where_the_model_would_speak_for_the_user(smollm2: Model, answer: str, kept: str) -> None:
    watcher, shown = OneTurn(smollm2), b""
    for token in smollm2.tokenize(answer, add_special=False):
        if watcher.see_token(token, np.zeros(1, np.float32)) is not Flow.GO_ON:
            break
        shown += smollm2.piece(token)
    assert shown.decode() == kept
