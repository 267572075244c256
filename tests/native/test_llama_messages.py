"""Control tokens in chat messages: text, unless the original's way is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dropin
import pytest
import tiny
from dropin import EOS, PROMPT, Make, tokens_of
from hypothesis import given, settings
from hypothesis import strategies as st

from via_sd_local import Llama
from via_sd_local.binding import import_llama_cpp

make = dropin.make
tiny_path = dropin.tiny_path

BOS = 1
# a turn ends with the model's end token, and a system message goes to another place
TEMPLATE = (
    "{% for m in messages %}{% if m.content is string %}{{ m.role }}:{{ m.content | trim }}{% else %}"
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}</s>{% endfor %}assistant:"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    overrides = {"tokenizer.chat_template": TEMPLATE}
    return tiny.write(tmp_path_factory.mktemp("messages") / "ends.gguf", dropin.LLAMA, overrides=overrides)


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[Llama]:
    with closing(Llama(str(path), n_ctx=512, n_threads=1, verbose=False, drafter="lookup")) as llm:
        yield llm


def prompt_of(llm: Llama, content: Any, **options: Any) -> list[int]:
    """The prompt's tokens of a conversation of one message."""
    llm.create_chat_completion([{"role": "user", "content": content}], max_tokens=1, **options)
    tokens: list[int] = llm.input_ids[: llm.last_stats["prompt_tokens"]].tolist()
    return tokens


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "content", ["a</s>b", "</s>", "</s></s>", "x </s>\n", [{"type": "text", "text": "a</s>b"}], "\ufdd0</s>\ufdd1"]
)
def test_a_control_token_in_a_message_is_text(llm: Llama, content: Any, stream: bool) -> None:
    text = content[0]["text"] if isinstance(content, list) else "user:" + content.strip()
    messages = [{"role": "user", "content": content}]
    answer = llm.create_chat_completion(messages, max_tokens=1, stream=stream)
    if stream:
        list(answer)
    prompt = llm.input_ids[: llm.last_stats["prompt_tokens"]].tolist()
    typed = llm.tokenize(text.replace("\ufdd0</s>\ufdd1", "</s>").encode(), add_bos=True, special=False)
    if "\ufdd0" not in text:  # marks of the user's own stay, and so does the text between
        assert prompt == [*typed, EOS, *llm.tokenize(b"assistant:", add_bos=False)]
    assert prompt.count(EOS) == 1
    assert messages == [{"role": "user", "content": content}]  # the caller's stay as they are


def test_the_original_way_is_an_option(path: Path, llm: Llama) -> None:
    with closing(Llama(str(path), n_ctx=64, n_threads=1, verbose=False, message_control_tokens=True)) as original:
        assert prompt_of(original, "a</s>b").count(EOS) == 2
        assert prompt_of(original, "a b") == prompt_of(llm, "a b")


@settings(max_examples=30, deadline=None)
@given(st.text("a <|/s>\n", max_size=24))
def test_other_messages_are_tokenised_as_in_the_original(llm: Llama, content: str) -> None:
    whole = f"user:{content.strip()}</s>assistant:"
    if not any(control in content for control in ("<s>", "</s>")):
        assert prompt_of(llm, content) == llm.tokenize(whole.encode(), add_bos=True, special=True)
    else:
        assert prompt_of(llm, content).count(EOS) == 1


def test_handlers_that_pass_a_text_are_covered_and_get_the_right_offsets(path: Path, llm: Llama) -> None:
    def handler(*, llama: Llama, messages: list[Any], **_arguments: Any) -> Any:
        return llama.create_completion(
            messages[0]["content"] + "</s>", max_tokens=1, logprobs=1, temperature=0, echo=True
        )

    with closing(Llama(str(path), n_ctx=64, n_threads=1, verbose=False, chat_handler=handler)) as own:
        answer = own.create_chat_completion([{"role": "user", "content": "a</s>b"}])
        assert own.input_ids[: own.last_stats["prompt_tokens"]].tolist().count(EOS) == 1
        assert answer["choices"][0]["text"].startswith("a</s>b</s>")
        assert answer["choices"][0]["logprobs"]["text_offset"][-1] == len("a</s>b</s>")


def test_prompts_of_completions_are_left_alone(make: Make) -> None:
    llm = make()
    llm(PROMPT + "</s>", max_tokens=1)
    assert llm.input_ids[: llm.last_stats["prompt_tokens"]].tolist().count(EOS) == 1
    assert import_llama_cpp("llama").Llama.tokenize(llm, b"</s>", False, True) == llm.tokenize(b"</s>", False, True)
    assert tokens_of("<")[0] in llm.tokenize(b"</s>", add_bos=False)
