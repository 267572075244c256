"""Messages of the package in the words of the command line."""

from __future__ import annotations

import pytest

from via_sd_local.calibration.plan import Plan
from via_sd_local.cli.options import add_sampling, add_settings
from via_sd_local.cli.parser import Parser
from via_sd_local.cli.wording import _NAMES, as_typed
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.session.settings import Settings


@pytest.mark.parametrize(
    ("message", "typed"),
    [
        ("top_p is 3.0; it must be", "--top-p is 3.0; it must be"),
        ("type_v is 'q4_0' with flash_attn 'off'", "--cache-type-v is 'q4_0' with --flash-attn 'off'"),
        ("draft_placement: main_gpu is 3, counted", "--draft-main-gpu is 3, counted"),
        ("mode 'sd' needs a drafter: a draft model (draft)", "--mode sd needs a drafter: a draft model (--draft)"),
        ("minutes and evaluations are two budgets", "--minutes and --evaluations are two budgets"),
        ("leave out minutes, evaluations, skip_ratio", "leave out --minutes, --evaluations, --skip-ratio"),
        ("grammar and json_schema both", "--grammar-file and --json-schema-file both"),
        # words of a sentence, and parts of names, stay
        ("the mask skips the attention of every layer", "the mask skips the attention of every layer"),
        ("/models/n_ctx/top_p.gguf does not exist", "/models/n_ctx/top_p.gguf does not exist"),
        ("draft models and the mode of the day", "draft models and the mode of the day"),
    ],
)
def test_parameters_become_options_and_words_stay_words(message: str, typed: str) -> None:
    assert as_typed(message) == typed


def test_every_option_that_a_message_may_name_exists() -> None:
    parser = Parser()
    add_settings(parser, verifier="v")
    add_sampling(parser)
    elsewhere = {"--skip-ratio", "--answer-tokens", "--kv-heads", "--copies-from"}  # of calibrate and of testbed build
    named = {as_typed(f"{name} is 1").partition(" ")[0] for name in _NAMES}
    assert named - elsewhere <= set(parser._option_string_actions)


def test_what_the_package_refuses_is_named_as_it_was_typed() -> None:
    cases = {
        "--top-p": lambda: SamplingParams(top_p=3),
        "--mirostat": lambda: SamplingParams(mirostat_mode=5),
        "--draft-mask": lambda: Settings("v", draft_mask="3"),
        "--minutes": lambda: Plan(verifier="v", minutes=1.0, evaluations=3),
    }
    for option, refused in cases.items():
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is what is tested
            refused()
        assert as_typed(str(caught.value)).startswith(f"{option} ")
