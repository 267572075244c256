"""JSON schemas: refused before generating where they cannot be enforced, and enforced on every token where they can."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import tiny
from oracle import near_ties

from via_sd_local.engine.engine import Engine
from via_sd_local.engine.gate import ConfidenceRule
from via_sd_local.engine.policy import Mode, Policy
from via_sd_local.runtime.model import Model
from via_sd_local.sampling.factory import make_sampler
from via_sd_local.sampling.json_schema import to_gbnf
from via_sd_local.sampling.params import SamplingParams
from via_sd_local.tiers.drafter import Drafter
from via_sd_local.tiers.model_drafter import ModelDrafter
from via_sd_local.tiers.prompt_lookup import PromptLookup
from via_sd_local.tiers.verifier import Verifier

PLACE = {
    "title": "Place",
    "type": "object",
    "properties": {
        "kind": {"enum": ["sea", "lake", "river"]},
        "depth": {"type": "integer"},
        "salty": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
        "names": {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 2, "maxItems": 2},
    },
    "required": ["kind", "depth", "salty", "names"],
    "additionalProperties": False,
}


def follows(text: str) -> bool:
    """Whether a text is a JSON object of the form that PLACE describes."""
    value = json.loads(text)
    return (
        list(value) == ["kind", "depth", "salty", "names"]
        and value["kind"] in ("sea", "lake", "river")
        and type(value["depth"]) is int
        and value["salty"] in (True, False, None)
        and len(value["names"]) == 2
        and all(type(name) is str and len(name) <= 3 for name in value["names"])
    )


def answers(engine: Engine, prompt: list[int], **params: Any) -> list[int]:
    steps = engine.generate(prompt, max_tokens=150, sampling=SamplingParams(json_schema=PLACE, **params))
    return [token for step in steps for token in step.tokens]


@pytest.mark.parametrize(
    ("mode", "drafter"),
    [(mode, "lookup") for mode in Mode] + [(Mode.SD, "model")],
    ids=lambda value: value.value if isinstance(value, Mode) else value,
)
def test_a_schema_is_enforced_on_drafted_tokens(
    mode: Mode, drafter: str, smollm2: Model, verifier: Callable[..., Verifier], keep: Callable[[Any], Any]
) -> None:
    """The prompt is full of what the schema forbids; each answer follows it, and lossless ones are plain's."""
    wrong = '{"kind": "ocean", "depth": "deep", "salty": "yes", "names": ["Atlantic", "Pacific", "Indian"]}'
    prompt = smollm2.tokenize(f"{wrong}\n{wrong}\n{wrong}\n")
    own: Drafter = PromptLookup(min_ngram=1)
    if drafter == "model":
        own = keep(ModelDrafter(smollm2, smollm2, n_ctx=384, n_threads=1))
    tiers = verifier(smollm2, "21-22" if mode.uses_slim_tier else "", 384)
    engine = Engine(tiers, own, Policy(mode, 4, rule=ConfidenceRule(0, 0)))
    reference = verifier(smollm2, "", 384).context
    for params in ({}, {"temperature": 1.0, "seed": 5}):
        tokens = answers(engine, prompt, **params)
        assert follows(smollm2.detokenize(tokens)), smollm2.detokenize(tokens)
        if mode in (Mode.SD, Mode.EXACT) and not params:
            sampler = make_sampler(smollm2, SamplingParams(json_schema=PLACE), prompt)
            assert near_ties(reference, prompt, tokens, sampler) <= 3  # every other token is the full model's choice
    if mode is not Mode.PLAIN:
        assert engine.stats.accepted > 0
        assert (engine.stats.drafted > engine.stats.accepted) == (
            drafter == "lookup"
        )  # a model's drafts follow it, too


@pytest.mark.parametrize("form", [PLACE, json.dumps(PLACE)], ids=["mapping", "text"])
def test_a_schema_is_a_mapping_or_json_text(form: Any) -> None:
    grammar = to_gbnf(form)
    assert 'kind ::= "\\"sea\\"" | "\\"lake\\"" | "\\"river\\""' in grammar
    assert "\nroot ::= " in grammar


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^a+$"},
        {"type": "string", "pattern": "abc"},
        {"type": "array", "prefixItems": [{}, {"type": "null"}], "minItems": 2, "maxItems": 2},
        {"allOf": [{"enum": ["a"]}]},
        {"type": "string", "format": "date"},
        {"type": ["string", "null"]},
        {"const": 5},
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]},
        {"allOf": [{"properties": {"a": {"type": "null"}}}]},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "number"}}},
        {"type": "object", "additionalProperties": {"type": "number"}},
        {"oneOf": [{"type": "number"}, {"type": "string", "minLength": 1, "maxLength": 2}]},
        {"type": "object"},
        {},
    ],
    ids=json.dumps,
)
def test_what_a_grammar_can_enforce_is_taken(
    schema: dict[str, Any], tiny_model: Callable[..., Model], verifier: Callable[..., Verifier]
) -> None:
    engine = Engine(verifier(tiny_model(tiny.spec("llama"))))
    steps = engine.generate([1], max_tokens=2, sampling=SamplingParams(json_schema=schema))
    assert sum(len(step.tokens) for step in steps) > 0


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "json_schema is not JSON: Expecting property name"),
        ("", "json_schema is not JSON"),
        ({"const": {1, 2}}, "json_schema is not JSON: .*set"),
        ("[]", r"the schema is \[\]; it must be an object"),
        ("true", "the schema is true; it must be an object"),
        ({"type": "strng"}, "the schema has the type 'strng'; types are string, number"),
        ({"type": ["string", "nil"]}, "the schema has the type 'nil'"),
        ('{"const": NaN}', "json_schema is not JSON: NaN is no number of JSON"),
        ({"const": float("inf")}, "json_schema is not JSON: Out of range float values"),
        ({"type": "string", "enum": [1, None]}, "no value of an enum or const is of its type, 'string'"),
        ({"properties": {}, "required": [[]]}, "'required' of the schema must be a list of names"),
        ({"items": {"type": "string"}, "maxItems": 2001}, "'maxItems' of the schema is 2001; a grammar counts to 2000"),
        ({"prefixItems": [{}, {}], "minItems": 3}, "the schema has 2 prefixItems, which its minItems and maxItems"),
        ({"allOf": [{"properties": {"a": {}}}, {"type": "string"}]}, "allOf 1 is no object of properties"),
        ({"allOf": [{"properties": {"a": {}}}, {"properties": {"a": {}}}]}, "allOf describes 'a' twice"),
        ({"type": "integer", "minimum": 3}, "the schema has 'minimum', which a grammar cannot enforce beside 'type'"),
        ({"not": {"type": "string"}}, "the schema has 'not', which a grammar cannot enforce"),
        ({"properties": {"a": {"type": "number", "multipleOf": 2}}}, "properties 'a' has 'multipleOf'"),
        ({"anyOf": [{"type": "null"}], "properties": {}}, "has 'properties', which .* beside 'anyOf'"),
        ({"items": {"type": "string", "uniqueItems": True}}, "items of the schema has 'uniqueItems'"),
        ({"anyOf": [{"type": "string"}, {"if": {}}]}, "anyOf 1 of the schema has 'if'"),
        ({"type": "string", "format": "email"}, "the format 'email'; supported are date, time"),
        ({"enum": []}, "'enum' of the schema is empty"),
        ({"oneOf": []}, "'oneOf' of the schema is empty"),
        ({"type": []}, "'type' of the schema is empty"),
        ({"properties": []}, "'properties' of the schema must be an object"),
        ({"properties": {"a": 3}}, "properties 'a' is 3; it must be an object"),
        ({"properties": {}, "required": ["b"]}, "the schema requires 'b', which its properties do not describe"),
        (
            {"items": {"type": "null"}, "maxItems": -1},
            "'maxItems' of the schema is -1; it must be an integer of at least 0",
        ),
        ({"type": "string", "minLength": 3, "maxLength": 1}, "'minLength' of the schema is above 'maxLength'"),
        ({"$ref": "https://example.org/s.json"}, "points to another document, which is not fetched"),
        ({"$ref": "#/$defs/a"}, "'#/\\$defs/a' points to no part of the schema"),
        ("[" * 200_000, "nested too deeply"),
        ("[" * 150 + "]" * 150, "json_schema is nested more than 100 deep"),
    ],
    ids=str,
)
def test_what_it_cannot_is_refused_before_generating(
    schema: Any, message: str, tiny_model: Callable[..., Model], verifier: Callable[..., Verifier]
) -> None:
    engine = Engine(verifier(tiny_model(tiny.spec("llama"))))
    with pytest.raises(ValueError, match=message):
        engine.generate([1], sampling=SamplingParams(json_schema=schema))


def test_a_grammar_and_a_schema_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="give one of the two"):
        SamplingParams(grammar='root ::= "a"', json_schema={})
