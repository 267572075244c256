"""JSON texts as GBNF: literals, the rules of JSON's own types, and the characters of its strings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import TypeAlias

_SURROGATES = re.compile("[\ud800-\udfff]")
_HEX = "[0-9a-fA-F]"
_DIGITS = "[0-9]{0,15}"
_DATE = '[0-9]{4} "-" ( "0" [1-9] | "1" [0-2] ) "-" ( "0" [1-9] | [1-2] [0-9] | "3" [0-1] )'
_TIME = (
    '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ( "." [0-9]{3} )? '
    '( "Z" | ( "+" | "-" ) ( [01] [0-9] | "2" [0-3] ) ":" [0-5] [0-9] )'
)

Ranges: TypeAlias = Sequence[tuple[int, int]]  # code points, first and last

_LAST = 0x10FFFF
# A string has no raw control characters, which JSON forbids, and no halves of surrogate pairs, raw or escaped: many
# parsers reject them, and two halves would count as two characters
NOT_PLAIN: Ranges = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x7F), (0xD800, 0xDFFF))


def complement(ranges: Ranges) -> Ranges:
    """Return the characters outside these ranges."""
    rest: list[tuple[int, int]] = []
    start = 0
    for first, last in sorted(ranges):
        if first > start:
            rest.append((start, first - 1))
        start = max(start, last + 1)
    return [*rest, (start, _LAST)] if start <= _LAST else rest


def character_class(ranges: Ranges) -> str:
    """Return the GBNF class of these characters.

    It is never negated: a negated class of llama.cpp also permits bytes that are no UTF-8, above U+10FFFF.
    """
    return "[" + "".join(_member(first) + (f"-{_member(last)}" if last > first else "") for first, last in ranges) + "]"


def _member(code: int) -> str:
    return f"\\U{code:08X}" if code > 0x7F or not chr(code).isalnum() else chr(code)


RULES = MappingProxyType(
    {
        "space": '" "?',
        "boolean": '("true" | "false") space',
        "null": '"null" space',
        "integral-part": f"[0-9] | [1-9] {_DIGITS}",
        "decimal-part": f"[0-9] {_DIGITS}",
        "integer": '("-"? integral-part) space',
        "number": '("-"? integral-part) ("." decimal-part)? ([eE] [-+]? integral-part)? space',
        "char": f"{character_class(complement(NOT_PLAIN))} | "
        rf'"\\" (["\\/bfnrt] | "u" ([0-9a-cefA-CEF] {_HEX}{{3}} | [dD] [0-7] {_HEX}{{2}}))',
        "string": r'"\"" char* "\"" space',
        "array": '"[" space ( value ("," space value)* )? "]" space',
        "object": '"{" space ( string ":" space value ("," space string ":" space value)* )? "}" space',
        "value": "object | array | string | number | boolean | null",
        "date": _DATE,
        "time": _TIME,
        "date-time": 'date "T" time',
        "date-string": r'"\"" date "\"" space',
        "time-string": r'"\"" time "\"" space',
        "date-time-string": r'"\"" date-time "\"" space',
        "uuid": r'"\"" ' + ' "-" '.join(f"{_HEX}{{{n}}}" for n in (8, 4, 4, 4, 12)) + r' "\"" space',
    }
)
_NAMES = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|([a-zA-Z][a-zA-Z0-9-]*)')  # outside literals and classes


def references(text: str) -> list[str]:
    """Return the names of the rules that the right side of a rule refers to."""
    return [match[1] for match in _NAMES.finditer(text) if match[1]]


def with_dependencies(names: Iterable[str]) -> dict[str, str]:
    """Return these rules of `RULES` and all that they refer to, by name."""
    rules: dict[str, str] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in rules:
            rules[name] = RULES[name]
            waiting += references(RULES[name])
    return rules


def json_text(value: object) -> str:
    """Return a value as JSON: characters as they are, but for those that JSON or UTF-8 forbids."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _SURROGATES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def json_character(code: int) -> str:
    """Return a character as it stands in a JSON string."""
    return json_text(chr(code))[1:-1]


def literal(text: str) -> str:
    """Return the GBNF literal of a text."""
    return '"' + "".join(_in_literal(character) for character in text) + '"'


def _in_literal(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return f"\\x{ord(character):02X}" if ord(character) < 0x20 or ord(character) == 0x7F else character


def repeated(rule: str, least: int, most: int | None) -> str:
    """Return a rule or a group, repeated at least and at most so many times; None is no limit."""
    if (least, most) == (1, 1):
        return rule
    signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    if (least, most) in signs:
        return rule + signs[least, most]
    return f"{rule}{{{least},{'' if most is None else most}}}"
