"""The sampling that is used where the user chooses none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from via_sd_local.chat.sampling_text import describe
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.sampling.recommended import ChosenSampling, Recommendation, recommended

SMOLLM2 = {"architecture": "llama", "basename": "smollm2", "name": "Smollm2 135M 8k Lc100K Mix1 Ep2"}


def metadata(**general: str) -> Callable[[str], str | None]:
    """The metadata of a file with these `general.` keys; `_` stands for the dot in `sampling_temp`."""
    return {f"general.{key.replace('sampling_', 'sampling.', 1)}": value for key, value in general.items()}.get


@pytest.mark.parametrize(
    ("general", "expected"),
    [
        (SMOLLM2, SamplingParams(temperature=0.2, top_p=0.9)),
        ({"architecture": "smollm3", "name": "SmolLM3 3B"}, SamplingParams(temperature=0.6, top_p=0.95)),
        ({"architecture": "llama", "name": "Llama 3.2 3B Instruct"}, SamplingParams(temperature=0.6, top_p=0.9)),
        ({"architecture": "llama", "basename": "Meta-Llama-3.1"}, SamplingParams(temperature=0.6, top_p=0.9)),
        ({"architecture": "gemma3"}, SamplingParams(temperature=1.0, top_k=64, top_p=0.95)),
        (
            {"architecture": "qwen2", "name": "Qwen2.5 7B Instruct"},
            SamplingParams(temperature=0.7, top_k=20, top_p=0.8, repeat_penalty=1.05),
        ),
        ({"architecture": "qwen3moe"}, SamplingParams(temperature=0.6, top_k=20, top_p=0.95)),
        ({"architecture": "qwen2", "name": "Qwen2 7B"}, None),
        ({"architecture": "llama", "name": "TinyLlama 1.1B"}, None),
        ({"architecture": "gemma"}, None),
        ({}, None),
    ],
)
def test_a_family_is_recognised_by_architecture_and_name(
    general: dict[str, str], expected: SamplingParams | None
) -> None:
    found = recommended(metadata(**general))
    assert (found and found.params) == expected


def test_the_file_s_own_settings_come_before_the_family_s() -> None:
    own = {"sampling_temp": "0.700000", "sampling_top_k": "20", "sampling_penalty_repeat": "1.1"}
    found = recommended(metadata(**SMOLLM2, **own))
    assert found is not None
    assert found.params == SamplingParams(temperature=0.7, top_k=20, repeat_penalty=1.1)
    assert found.source == "the model's file"


@pytest.mark.parametrize("value", ["-1", "warm", "nan"])
def test_impossible_settings_in_a_file_are_ignored_with_a_warning(value: str) -> None:
    with pytest.warns(RuntimeWarning, match="settings in the model's file are ignored"):
        found = recommended(metadata(**SMOLLM2, sampling_temp=value))
    assert found is not None
    assert found.params.temperature == 0.2


RECOMMENDATION = Recommendation(SamplingParams(temperature=0.7, top_k=20, repeat_penalty=1.05), "its makers")


def test_what_the_user_gives_comes_first_and_the_rest_is_as_recommended() -> None:
    chosen = ChosenSampling({"top_k": 5, "seed": 1}, RECOMMENDATION)
    assert chosen.params == SamplingParams(temperature=0.7, top_k=5, repeat_penalty=1.05, seed=1)
    assert chosen.with_value("top_k", None).params.top_k == 20
    assert chosen.for_model(None).params == SamplingParams(top_k=5, seed=1)
    with pytest.raises(ValueError, match="temperature is -1"):
        chosen.with_value("temperature", -1.0)


def test_temperature_0_is_greedy_whatever_is_recommended() -> None:
    assert ChosenSampling({"temperature": 0.0}, RECOMMENDATION).params == SamplingParams()
    assert ChosenSampling({"temperature": 0.0, "repeat_penalty": 1.2}, RECOMMENDATION).params == SamplingParams(
        repeat_penalty=1.2
    )


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (SamplingParams(), "temperature 0"),
        (SamplingParams(temperature=0.2, top_p=0.9), "temperature 0.2, top-p 0.9"),
        (SamplingParams(top_p=0.9, repeat_penalty=1.1, seed=3), "temperature 0, repeat-penalty 1.1"),
        (SamplingParams(temperature=1, grammar="root ::= [a]", seed=3), "temperature 1, grammar, seed 3"),
    ],
)
def test_sampling_is_described_by_what_is_not_off(params: SamplingParams, text: str) -> None:
    assert describe(params) == text
