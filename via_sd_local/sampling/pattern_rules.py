"""Regular expressions of JSON schemas as GBNF, for the characters of a JSON string.

Python's parser reads the pattern. JSON schemas mean ECMAScript's dialect: what the two read differently is refused.
"""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from typing import Any

from .gbnf_limits import MAX_REPETITIONS
from .json_rules import NOT_PLAIN, Ranges, character_class, complement, json_character, literal, repeated

_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")

_DIGIT: Ranges = [(0x30, 0x39)]
_WORD: Ranges = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_SPACE: Ranges = [
    *((9, 13), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
]
_LINE_ENDS: Ranges = [(10, 10), (13, 13), (0x2028, 0x2029)]
_CATEGORIES = {"DIGIT": _DIGIT, "WORD": _WORD, "SPACE": _SPACE}
_SHORT_ESCAPES = (0x22, 0x5C, 8, 9, 10, 12, 13)
_REFUSED = {
    "ASSERT": "a lookahead or lookbehind",
    "ASSERT_NOT": "a negative lookahead or lookbehind",
    "GROUPREF": "a backreference",
    "GROUPREF_EXISTS": "a conditional group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repetition",
}
_DIFFERENT = re.compile(r"\{,|\[\^?\]|\(\?[aiLmsux#P]|\\[aAZzNU]")  # Python's meaning is not ECMAScript's


class PatternError(ValueError):
    """A pattern that no grammar of this module can enforce; the message is the reason."""


def pattern_rule(pattern: str) -> str:
    """Return the GBNF text of the JSON strings that a pattern matches, without their quotation marks.

    The pattern may match anywhere in the string unless it is anchored with `^` and `$`. Refers to the rule `char`.
    Raises PatternError for what a grammar cannot enforce.
    """
    if different := _DIFFERENT.search(pattern):
        raise PatternError(f"{different[0]!r}, which is not of the dialect that JSON schemas use")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about brackets that later versions may read otherwise
            tree = list(_parser.parse(pattern))
        if len(tree) == 1 and str(tree[0][0]) == "BRANCH":
            return " | ".join(_anchored(list(branch)) for branch in tree[0][1][1])
        return _anchored(tree)
    except (re.error, OverflowError) as error:
        raise PatternError(f"a mistake: {error}") from None
    except RecursionError:
        raise PatternError("too many nested groups") from None


def _anchored(nodes: list[Any]) -> str:
    """Return the rule of a whole branch, which matches anywhere where it has no anchor."""
    before = after = "char*"
    if nodes and _is_anchor(nodes[0], "AT_BEGINNING"):
        nodes, before = nodes[1:], ""
    if nodes and _is_anchor(nodes[-1], "AT_END"):
        nodes, after = nodes[:-1], ""
    return " ".join(filter(None, (before, _sequence(nodes), after)))


def _is_anchor(node: Any, name: str) -> bool:
    return str(node[0]) == "AT" and str(node[1]) == name


def _sequence(nodes: Any) -> str:
    """Return the rule of nodes that follow each other."""
    parts: list[str] = []
    run = ""  # literal characters
    for operation, argument in nodes:
        if str(operation) == "LITERAL":
            run += json_character(argument)
            continue
        if run:
            parts.append(literal(run))
            run = ""
        parts.append(_node(str(operation), argument))
    if run:
        parts.append(literal(run))
    return " ".join(parts) or '""'


def _node(operation: str, argument: Any) -> str:
    if operation in ("NOT_LITERAL", "ANY", "IN"):
        return _characters(_ranges(operation, argument))
    if operation == "BRANCH":
        return "(" + " | ".join(_sequence(branch) for branch in argument[1]) + ")"
    if operation == "SUBPATTERN":
        _, added, removed, nodes = argument
        if added or removed:
            raise PatternError("a group with flags")
        return f"({_sequence(nodes)})"
    if operation in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, nodes = argument
        most = None if most == _parser.MAXREPEAT else int(most)
        if max(int(least), most or 0) > MAX_REPETITIONS:
            raise PatternError(f"more than {MAX_REPETITIONS} repetitions")
        return repeated(f"({_sequence(nodes)})", int(least), most)
    if operation == "AT":
        raise PatternError("a word boundary" if "BOUNDARY" in str(argument) else "an anchor inside")
    raise PatternError(_REFUSED.get(operation, operation))


def _ranges(operation: str, argument: Any) -> Ranges:
    """Return the characters that a node matches."""
    if operation == "ANY":
        return complement(_LINE_ENDS)
    if operation == "NOT_LITERAL":
        return complement([(argument, argument)])
    ranges: list[tuple[int, int]] = []
    negated = False
    for kind, value in argument:
        name = str(kind)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            ranges.append((value, value))
        elif name == "RANGE":
            ranges.append(value)
        else:
            category = str(value).removeprefix("CATEGORY_")
            known = _CATEGORIES[category.removeprefix("NOT_")]
            ranges += complement(known) if category.startswith("NOT_") else known
    return complement(ranges) if negated else ranges


def _characters(ranges: Ranges) -> str:
    """Return the rule of one character of these ranges, as it stands in a JSON string.

    Control characters without a short escape are left out where other characters are possible.
    """
    plain = complement([*complement(ranges), *NOT_PLAIN])
    inside = [code for code in range(0x80) if any(first <= code <= last for first, last in ranges)]
    escaped = [code for code in inside if code in _SHORT_ESCAPES]
    if not plain:
        escaped = [code for code in inside if code < 0x20 or code in (0x22, 0x5C, 0x7F)]
    alternatives = [character_class(plain)] if plain else []
    alternatives += [literal(json_character(code)) for code in escaped]
    if not alternatives:
        raise PatternError("a character class that is empty")
    return alternatives[0] if len(alternatives) == 1 else f"({' | '.join(alternatives)})"
