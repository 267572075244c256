"""The grammars of JSON schemas permit exactly the right texts, as llama.cpp itself judges them byte by byte."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import tiny
from tiny_vocab import FIRST_PIECE

from via_sd_local.runtime.model import Model
from via_sd_local.sampling.chain import ChainSampler
from via_sd_local.sampling.json_schema import to_gbnf
from via_sd_local.sampling.params import SamplingParams

_FIRST_BYTE = FIRST_PIECE - 256
Judge = Callable[[Any, str], bool]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tiny.write(tmp_path_factory.mktemp("grammar") / "tiny.gguf", tiny.spec("llama"))
    with closing(Model(path)) as loaded:
        yield loaded


@pytest.fixture
def permits(model: Model) -> Judge:
    """`permits(schema, text)`: whether the text is one whole answer."""

    def judge(schema: Any, text: str) -> bool:
        with closing(ChainSampler(model, SamplingParams(json_schema=schema))) as sampler:
            try:
                for byte in text.encode("utf-8", "surrogatepass"):
                    sampler.accept(_FIRST_BYTE + byte)
                sampler.accept(model.eos)
            except ValueError:
                return False
            return True

    return judge


NAMES = ["c\\d", "", 'say "hi"', "two\nlines", "😀", "é", "\x7f", "a" * 300, "\ud800", "C:\\dir", "\\u0041", "[x](y)"]


@pytest.mark.parametrize("value", [*NAMES, 5, -0.5, 1e100, True, None, [1, "\\"], {'"': "\\"}], ids=ascii)
def test_an_enum_and_a_const_are_the_values_as_they_are(value: Any, permits: Judge) -> None:
    text = json.dumps(value, ensure_ascii=False)
    text = re.sub("[\ud800-\udfff]", lambda half: json.dumps(half[0])[1:-1], text)
    for schema in ({"enum": ["other", value]}, {"const": value}):
        assert permits(schema, text)
        assert json.loads(text) == value
        assert not permits(schema, text[:-1] or "x")
        assert not permits(schema, '""') or value == ""
        assert not permits(schema, json.dumps(value) + "x")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("required", [True, False])
def test_a_property_has_its_name_as_it_is(name: str, required: bool, permits: Judge) -> None:
    key = re.sub("[\ud800-\udfff]", lambda half: json.dumps(half[0])[1:-1], json.dumps(name, ensure_ascii=False))
    schema = {"properties": {name: {"const": 1}, "b": {"const": 2}}, "required": [name] if required else []}
    assert permits(schema, f"{{{key}:1}}")
    assert permits(schema, f'{{{key}: 1,"b":2}}')
    assert permits(schema, '{"b":2}') is not required
    assert permits(schema, "{}") is not required
    for wrong in (f"{{{key}:2}}", f'{{{key}:1"b":2}}', '{"x":1}', f'{{"b":2,{key}:1}}', f"{{{key}:1,}}"):
        assert not permits(schema, wrong)


def test_two_properties_whose_names_look_alike_as_rules_are_kept_apart(permits: Judge) -> None:
    schema = {
        "properties": {"a-b": {"const": 1}, "a b": {"const": 2}, "string": {"const": 3}, "root": {"const": 4}},
        "required": ["a-b", "a b", "string", "root"],
    }
    assert permits(schema, '{"a-b":1,"a b":2,"string":3,"root":4}')
    assert not permits(schema, '{"a-b":1,"a b":1,"string":3,"root":4}')


@pytest.mark.parametrize("character", ["\n", "\t", "\0", "\x1f", "\x7f", "\ud800"], ids=ascii)
@pytest.mark.parametrize("schema", [{"type": "object"}, {"properties": {"a": {"type": "string"}}}, {}], ids=str)
def test_a_string_has_no_raw_control_character(character: str, schema: Any, permits: Judge) -> None:
    """Every answer parses, with strict parsers, too."""
    assert permits(schema, '{"a":"x\\n\\u0007😀\\\\"}')
    assert not permits(schema, f'{{"a":"x{character}"}}')
    assert not permits(schema, '{"a":"\\ud800"}')  # half of a pair
    assert not permits(schema, '{"a":"\\x"}')


def test_lengths_count_characters(permits: Judge) -> None:
    schema = {"type": "string", "minLength": 2, "maxLength": 3}
    for text in ('"ab"', '"😀é"', '"\\n\\u00e9x"'):
        assert permits(schema, text)
    for text in ('"a"', '"abcd"', '"\\ud83d\\ude00"', '"😀"'):
        assert not permits(schema, text)
    assert permits({"type": "string", "maxLength": 0}, '""')
    assert permits({"type": "string", "maxLength": 2000}, '"' + "x" * 40 + '"')


@pytest.mark.parametrize(
    ("bounds", "lengths"), [((0, 0), {0}), ((0, 1), {0, 1}), ((1, 1), {1}), ((2, 3), {2, 3}), ((1, None), {1, 2, 3, 4})]
)
def test_arrays_have_so_many_items(bounds: tuple[int, int | None], lengths: set[int], permits: Judge) -> None:
    schema = {"items": {"const": 1}, "minItems": bounds[0]} | ({"maxItems": bounds[1]} if bounds[1] is not None else {})
    found = {n for n in range(5) if permits(schema, json.dumps([1] * n, separators=(",", ":")))}
    assert found == lengths
    assert not permits(schema, "[1,]")


def test_other_properties_are_none_of_the_named_ones(permits: Judge) -> None:
    """`{"ab": …}` of another type would break the schema."""
    schema = {"properties": {"ab": {"const": 1}, 'q"': {"const": 1}}, "additionalProperties": {"const": 2}}
    for key in ("x", "a", "abc", "", "q", 'q\\"x', "b"):
        assert permits(schema, f'{{"{key}":2}}'), key
        assert permits(schema, f'{{"ab":1,"{key}":2,"{key}":2}}'), key
    assert permits(schema, '{"ab":1,"q\\"":1,"x":2}')
    for wrong in ('{"ab":2}', '{"q\\"":2}', '{"ab":1"x":2}', '{"x":1}', '{"\\u0061b":2}'):
        assert not permits(schema, wrong), wrong


STRINGS = [
    *("", "a", "aa", "ab", "abc", "b", "c", "1", "12", "123", "1.5", "a1", "a b", " ", "\t", "\n", "\\", '"', "/", "-"),
    *("_", "é", "😀", "x.y", "xy", "a/b", "2024-01-31", "\u2028", "\x07", "}", "]", "^", "a-b", "aab", "aabb", "A"),
]


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            r"^\d+$",
            r"^\w+$",
            r"^\s$",
            r"^.$",
            r"^\.$",
            r"^a\/b$",
            r"^[^a-c]$",
            r"^[\w.-]+$",
            r"^\D$",
            r"^\W$",
            r"^\S+$",
        ),
        *(r"^(a|b)+$", r"^a{2}$", r"^a{2,}b?$", r"^(?:aa|ab){1,2}c?$", r"^a*?$", r"^$", r"^", r"b", r"^a", r"b$"),
        *(r"^a|b$", r"^\d{4}-\d{2}-\d{2}$", r'^["\\]$', r"^\x61\u0062?$", r"^[\]\^-]$", r"^[\s\S]$", r"^\n$", r"a.c"),
        *(r"^\t|\\$", r"^😀$", r"^[é😀]$"),
    ],
)
def test_a_pattern_permits_the_strings_that_it_matches(pattern: str, permits: Judge) -> None:
    expression = re.compile(pattern, re.ASCII)
    for text in STRINGS:
        matches = bool(expression.search(text)) and not (text.endswith("\n") and pattern.endswith("$") and text != "\n")
        if text == "\u2028":  # a space, and the end of a line, in ECMAScript
            continue
        if text == "\x07":  # what a model would have to write as \u0007 is left out of wide classes
            continue
        encoded = json.dumps(text, ensure_ascii=False)
        if text == "\n" and pattern in (r"^$", r"^a*?$", r"b$", r"^a|b$"):
            matches = False  # Python's $ also matches before a last line end
        assert permits({"type": "string", "pattern": pattern}, encoded) is matches, (pattern, text)


def test_a_wide_class_and_an_anchored_line_separator_follow_ecmascript(permits: Judge) -> None:
    assert permits({"type": "string", "pattern": r"^\s$"}, '"\u2028"')
    assert not permits({"type": "string", "pattern": r"^.$"}, '"\u2028"')
    assert permits({"type": "string", "pattern": "^\x07$"}, r'"\u0007"')
    assert not permits({"type": "string", "pattern": "^.$"}, '"\x07"')


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"^(?=a)b$", "a lookahead"),
        (r"^(?!a)b$", "a negative lookahead"),
        (r"^(a)\1$", "a backreference"),
        (r"\bword\b", "a word boundary"),
        (r"^a$b", "an anchor inside"),
        (r"^(?i)a$", "which is not of the dialect"),
        (r"^\p{L}$", r"a mistake: bad escape \\p"),
        (r"^(a$", "a mistake: missing \\)"),
        (r"^a{3,1}$", "a mistake: min repeat greater"),
        (r"^a{0,5000}$", "more than 2000 repetitions"),
        (r"^[^]$", "which is not of the dialect"),
        ("(" * 5000 + ")" * 5000, "too many nested groups"),
    ],
)
def test_a_pattern_that_no_grammar_enforces_is_refused_by_name(pattern: str, what: str) -> None:
    with pytest.raises(ValueError, match=what) as caught:
        to_gbnf({"properties": {"code": {"type": "string", "pattern": pattern}}})
    assert "of properties 'code' has" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_references_may_be_recursive_and_point_anywhere(permits: Judge) -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "a/b": {"$ref": "#/$defs/x~1y"}}, "$defs": {"x/y": {"const": 7}}}
    assert permits(tree, '{"left":{"left":{},"a/b":7}}')
    assert not permits(tree, '{"left":7}')
    merged = {
        "allOf": [{"$ref": "#/$defs/a"}, {"properties": {"c": {"const": 2}}}],
        "$defs": {"a": {"properties": {"b": {"const": 1}}, "required": ["b"]}},
    }
    assert permits(merged, '{"b":1,"c":2}')
    assert permits(merged, '{"b":1}')
    assert not permits(merged, '{"c":2}')


def test_a_reference_to_itself_is_refused(permits: Judge, model: Model) -> None:
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    with pytest.raises(ValueError, match="left recursion"):
        ChainSampler(model, SamplingParams(json_schema=loop))


def test_every_answer_of_random_draws_parses(model: Model) -> None:
    """Answers that end, drawn from uniform logits over all of ASCII, the vocabulary's pieces and control tokens.

    (Not over other bytes: llama.cpp does not check that the second byte of a character is one.)
    """
    schema = {"properties": {"a": {"type": "string"}, "b": {}}, "required": ["a", "b"], "additionalProperties": True}
    finished = 0
    flat = np.zeros(model.n_vocab, np.float32)
    quote = _FIRST_BYTE + ord('"')
    flat[_FIRST_BYTE + 128 : FIRST_PIECE] = -np.inf
    flat[[quote, model.eos, _FIRST_BYTE + ord("}")]] = 3  # so that it ends
    for seed in range(12):
        with closing(ChainSampler(model, SamplingParams(temperature=1, json_schema=schema, seed=seed))) as sampler:
            text = b""
            for _ in range(150):
                token = sampler.choose(flat)
                sampler.accept(token)
                if token in model.eog:
                    finished += 1
                    value = json.loads(text.decode())  # strict: neither raw control characters nor broken UTF-8
                    assert isinstance(value["a"], str)
                    json.dumps(value, ensure_ascii=False).encode()
                    break
                text += model.piece(token)
    assert finished >= 3
