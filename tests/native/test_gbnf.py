"""Grammars that would end the process, hang it, or be misread are refused in one line with the reason."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import numpy as np
import pytest
import tiny

from via_sd_local.runtime.model import Model
from via_sd_local.sampling.chain import ChainSampler
from via_sd_local.sampling.params import SamplingParams


@pytest.fixture
def model(tiny_model: Callable[..., Model]) -> Model:
    return tiny_model(tiny.spec("llama"))


def chain_of_rules(n: int) -> str:
    """A grammar of n + 1 rules, each of which begins with the next."""
    return "".join(f"r{i} ::= r{i + 1}\n" for i in range(n - 1)) + f'r{n - 1} ::= "a"\nroot ::= r0\n'


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ("root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000, "it nests more than 200 parentheses"),
        (chain_of_rules(100_000), "it has more than 10000 rules and groups"),
        ('root ::= "a"{3,1}', r"the repetition \{3,1\} ends before it begins"),
        ('root ::= "a" { 3 , 1 }', r"the repetition \{ 3 , 1 \} ends before it begins"),
        ('root ::= "a"{0,3000}', r"the repetition \{0,3000\} is above 2000"),
        ('root ::= "a"{99999999999999999999999}', "is above 2000"),
        ('root ::= "a\0" "b"', "it has a NUL character"),
        ('root ::= "\ud800"', "its character 10 is half of a surrogate pair"),
        ("  \n", "it is empty"),
        ("root ::= (", r"expecting '\)'"),
        ('root ::= "a', "unexpected end of input"),
        ("root ::= other", "Undefined rule identifier 'other'"),
        ('start ::= "a"', "grammar does not contain a 'root' symbol"),
        ('root ::= root "a"', "left recursion detected"),
    ],
    ids=lambda text: text[:30],
)
def test_what_llama_cpp_cannot_take_is_refused_with_the_reason(
    grammar: str, reason: str, model: Model, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        ChainSampler(model, SamplingParams(grammar=grammar))
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= " + "(" * 200 + '"a"' + ")" * 200,
        chain_of_rules(9_000),
        'root ::= "((((" "a"? # ' + "(" * 500 + "\nother ::= [(({3,1}] <s> [\\](]",
        'root ::= "a"{2000}',
    ],
    ids=["groups", "rules", "brackets that do not count", "repetitions"],
)
def test_what_is_within_the_limits_works_also_on_the_small_stack_of_a_thread(grammar: str, model: Model) -> None:
    permitted: list[int] = []

    def sample() -> None:
        sampler = ChainSampler(model, SamplingParams(grammar=grammar))
        permitted.extend(np.flatnonzero(sampler.processed(np.zeros(model.n_vocab, np.float32)) > -np.inf))
        sampler.close()

    thread = threading.Thread(target=sample)
    thread.start()
    thread.join()
    assert {bytes(model.piece(token)) for token in permitted} <= {b"a", b"aa", b"(", b""}
    assert permitted


def test_standard_error_is_as_before_once_the_grammar_is_read(model: Model, capfd: pytest.CaptureFixture[str]) -> None:
    os.write(2, b"before\n")
    with pytest.raises(ValueError, match="unknown escape"):
        ChainSampler(model, SamplingParams(grammar='root ::= "\\q"'))
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "before\nafter\n"
