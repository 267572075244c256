"""What an answer looks like on a terminal's screen."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from terminals import HEIGHT, Terminal

from via_sd_local.chat.markup import rendered
from via_sd_local.chat.screen import Printable, last_boundary
from via_sd_local.chat.wrapping import Wrapped

DRIVER = """
import json, sys
from via_sd_local.session.text_steps import Piece
from via_sd_local.chat.frontend import make_display
from via_sd_local.chat.shade import Shade
from via_sd_local.engine.steps import Tier
from via_sd_local.visible import visible_terminals

guard = visible_terminals()
guard.__enter__()
display = make_display()
for name, *arguments in json.loads(sys.argv[1]):
    if name == "wait":
        print(flush=True, end=arguments[0])
        sys.stdin.readline()
    elif name == "push":
        display.push([Piece(text, Tier(tier), *drafted) for text, tier, *drafted in arguments])
    elif name == "legend":
        display.legend({Shade(shade): share for shade, share in arguments[0].items()})
    else:
        options = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        getattr(display, name)(*arguments, **options)
print("<over>", flush=True)
guard.__exit__(None, None, None)
"""
Show = Callable[..., Terminal]


@pytest.fixture
def show() -> Iterator[Show]:
    """`show(["push", ["text", "full"]], …, columns=80)`: a terminal in which a display was told these things."""
    terminals: list[Terminal] = []

    def start(*steps: Any, env: dict[str, str | None] | None = None, until: str = "<over>", **size: int) -> Terminal:
        terminal = Terminal([sys.executable, "-c", DRIVER, json.dumps(steps)], env or {}, **size)
        terminals.append(terminal)
        terminal.wait_for(until)
        return terminal

    yield start
    for terminal in terminals:
        terminal.close()


def answer(text: str, size: int = 3) -> list[Any]:
    """An answer that comes in pieces of so many characters."""
    return [["begin"], *(["push", [text[i : i + size], "full"]] for i in range(0, len(text), size)), ["end"]]


LIST = "# Fruit\n\nSome **good** ones:\n\n- an `apple`\n- a pear\n\n```python\nprint(1)\n```"


def test_a_complete_answer_is_rendered_in_its_place(show: Show) -> None:
    terminal = show(["note", "before"], *answer(LIST))
    assert terminal.rows[0] == "before"
    text = "\n".join(terminal.rows)
    assert not any(mark in text for mark in ("**", "`", "# "))
    assert [row.strip() for row in terminal.rows[1:] if row.strip()] == [
        *("Fruit", "Some good ones:", "• an apple", "• a pear", "print(1)", "<over>")
    ]
    assert all(cell.bold for cell in terminal.cells("good"))
    assert not any(cell.bold for cell in terminal.cells("ones"))


@pytest.mark.parametrize(
    "text", ["Just a sentence.", "Two\nlines, and 2 * 3 * 4 = 24 \n\n  indented", "", "snake_case_name"]
)
def test_text_without_markup_is_left_as_it_came(text: str, show: Show) -> None:
    terminal = show(*answer(text))
    assert terminal.rows == [*text.replace(" \n", "\n").split("\n"), "<over>"]
    assert b"\x1b[J" not in terminal.written


def test_line_breaks_and_html_survive_rendering(show: Show) -> None:
    terminal = show(*answer("Roses are *red*\nviolets are <b>blue</b>\n\n<div>&amp; so on</div>"))
    assert terminal.rows == ["Roses are red", "violets are <b>blue</b>", "", "<div>&amp; so on</div>", "<over>"]


@pytest.mark.parametrize("columns", [40, 41, 100])
def test_an_answer_that_wraps_leaves_nothing_behind(columns: int, show: Show) -> None:
    text = "**Start** " + "word " * 60 + "文字" * 30 + " *end*"
    terminal = show(["note", "before"], *answer(text), columns=columns)
    assert terminal.rows[0] == "before"
    joined = "".join(terminal.rows[1:]).replace(" ", "")
    assert joined == text.replace(" ", "").replace("*", "") + "<over>"


def test_a_row_that_ends_at_the_edge_is_one_row(show: Show) -> None:
    for length in (39, 40, 41):
        terminal = show(["note", "before"], *answer("**" + "x" * (length - 4) + "**"), columns=40)
        assert terminal.rows == ["before", "x" * (length - 4), "<over>"]


def test_a_long_answer_is_rendered_part_by_part(show: Show) -> None:
    text = "\n\n".join(f"Paragraph **{number}** has\ntwo lines." for number in range(40))
    terminal = show(*answer(text), lines=12)
    rows = terminal.all_rows
    assert "**" not in terminal.text
    assert "\n".join(rows) == text.replace("**", "") + "\n<over>"


def test_a_part_that_has_left_the_screen_stays_as_it_came(show: Show) -> None:
    block = "```\n" + "\n".join(f"line {number}" for number in range(30)) + "\n```"
    terminal = show(*answer(f"**Before**\n\n{block}\n\n**after** it"), lines=12)
    rows = terminal.all_rows
    assert rows[:2] == ["Before", ""]
    assert rows[2:34] == block.split("\n")
    assert rows[34:] == ["", "after it", "<over>"]


def test_after_a_resize_an_answer_is_left_as_it_came(show: Show) -> None:
    terminal = show(
        *answer("**one** two")[:-1], ["wait", "<wait>"], ["push", [" three", "full"]], ["end"], until="<wait>"
    )
    terminal.resize(60, HEIGHT)
    terminal.send("\r")
    terminal.wait_for("<over>")
    assert "**one** two<wait>" in terminal.text
    assert " three" in terminal.text


@pytest.mark.parametrize("text", ["⚠️ warning", "flag 🇩🇪", "family 👨‍👩‍👧", "combining e\u0301", "joiner a\u200db"])
def test_characters_of_uncertain_width_do_not_prevent_rendering(text: str, show: Show) -> None:
    long = f"**{text}** " + "and more of it " * 12
    terminal = show(["note", "before"], *answer(long, 1), columns=40)
    assert terminal.rows[0] == "before"
    assert "**" not in terminal.text
    assert terminal.text.count("and more") + terminal.text.count("and\nmore") == 12
    assert terminal.rows[-1] == "<over>"


def test_long_prose_is_wrapped_at_words_while_it_comes(show: Show) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 6
    for size in (1, 3, 1000):
        streaming = show(*answer(text, size)[:-1], ["wait", "<wait>"], until="<wait>", columns=40)
        rows = streaming.rows
        assert "\n".join(rows).replace("\n", " ").replace("<wait>", "").split() == text.split()
        assert max(map(len, rows)) <= 40
        words = set(text.split()) | {"<wait>", "dog.<wait>"}
        assert {word for row in rows for word in row.split()} <= words
    colored = show(
        ["begin", {"colors": True}], *[["push", [word + " ", "slim"]] for word in text.split()], ["end"], columns=40
    )
    assert {word for row in colored.rows for word in row.split()} <= set(text.split()) | {"<over>"}
    assert "default" not in {cell.fg for cell in colored.cells("lazy")}


def test_a_code_block_has_no_margin_and_its_long_lines_are_whole(show: Show) -> None:
    code = "def f():\n    return " + " + ".join(["one"] * 20)
    terminal = show(["note", "before"], *answer(f"**x**\n\n```python\n{code}\n```"), columns=40)
    assert "".join(terminal.screen.display).replace(" ", "").count("one+") == 19
    assert "def f():" in terminal.rows  # no space before it
    at = terminal.rows.index("def f():")
    assert terminal.rows[at + 1].startswith("    return one")
    assert (
        "".join(terminal.screen.display[at + 1 : at + 5]).rstrip() == code.splitlines()[1]
    )  # as the terminal wraps it
    assert terminal.rows[-1] == "<over>"


@pytest.mark.parametrize(
    "text",
    [
        r"**math:** \( x \) and \{ 1 \}",
        "**call** __init__ and _private_",
        r"**path** C:\_dir and C:\*x and a\\",
        "**product** 2*3*4 = 24 and a*b + c*d",
        "**entity** &lt;b&gt; &#27; &copy;",
        "**image** ![alt](http://example.org/y.png)",
        '**link** [Köln](https://example.org/Köln "the city")',
        "[1]: https://example.org\n\n**cited**",
        "| a | b |\n|---|---|\n| 1 | 2 | 3 |",
        "| " + " | ".join(f"head{n}" for n in range(30)) + " |\n|" + "---|" * 30 + "\n",
        "Title\n---\n**text**",
        "a line \\\n**b**",
    ],
)
def test_rendering_loses_no_character(text: str, show: Show) -> None:
    terminal = show(*answer(text), columns=60)
    shown = "".join(terminal.all_rows[:-1]).replace(" ", "")
    markup = ("**",) if "head" not in text and "| 3" not in text else ()
    wanted = text
    for mark in markup:
        wanted = wanted.replace(mark, "")
    for letter in set("".join(wanted.split())) - set('-|[]()<>"!'):
        assert shown.count(letter) >= wanted.count(letter), letter


def test_a_stopped_answer_is_rendered_as_far_as_it_came(show: Show) -> None:
    terminal = show(*answer("**one** two `thr")[:-1], ["end", {"stopped": True}])
    assert terminal.rows == ["one two `thr", "[stopped]", "<over>"]


def test_control_characters_of_a_model_are_shown_and_not_obeyed(show: Show) -> None:
    terminal = show(*answer("a\x1b[2Jb\x07\tc\r\n\x9bdx"))
    assert terminal.rows == ["a^[[2Jb^G    c", "<9b>dx", "<over>"]
    dumb = show(*answer("a\x1b[2Jb"), env={"TERM": "dumb"})
    assert dumb.rows == ["a^[[2Jb", "<over>"]


def test_tokens_have_the_colours_of_their_shades_and_so_has_the_legend(show: Show) -> None:
    terminal = show(
        ["begin", {"colors": True}],
        ["push", ["kept ", "draft", True], ["own ", "slim"], ["checked ", "full", True], ["**full**", "full"]],
        ["end"],
        ["legend", {"accepted": 0.4, "draft": 0.3, "slim": 0.2, "full": 0.1}],
    )
    legend = "■ accepted 40%  ■ draft 30%  ■ slim 20%  ■ full 10%"
    assert terminal.rows == ["kept own checked **full**", legend, "<over>"]
    colors = [{cell.fg for cell in terminal.cells(text)} for text in ("kept", "own", "checked", "**full**")]
    names = ("■ draft", "■ slim", "■ accepted", "■ full")
    assert colors == [{cell.fg for cell in terminal.cells(text)} for text in names]
    assert len(set.union(*colors)) == 4
    assert "default" not in set.union(*colors)


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"TERM": None}])
def test_plain_terminals_get_plain_text(env: dict[str, str | None], show: Show) -> None:
    terminal = show(["note", "before"], *answer(LIST), ["error", "no"], ["legend", {}], env=env)
    assert terminal.rows == ["before", *LIST.split("\n"), "error: no", "<over>"]
    assert b"\x1b" not in terminal.written


def test_no_color_drops_the_colours_and_keeps_markdown(show: Show) -> None:
    terminal = show(["note", "before"], *answer(LIST), ["error", "no"], env={"NO_COLOR": "1"})
    assert [row.strip() for row in terminal.rows if row.strip()] == [
        *("before", "Fruit", "Some good ones:", "• an apple", "• a pear", "print(1)", "error: no", "<over>")
    ]
    assert all(cell.bold for cell in terminal.cells("good"))
    cells = [cell for row in terminal.screen.buffer.values() for cell in row.values()]
    assert {(cell.fg, cell.bg) for cell in cells} == {("default", "default")}


def test_copied_text_goes_to_the_terminal_as_base64_and_is_not_shown(show: Show) -> None:
    text = "é **x**\x1b[2J" * 40
    terminal = show(["note", "before"], ["copy", text])
    assert b"\x1b]52;c;" + base64.b64encode(text.encode()) + b"\x07" in terminal.written
    assert terminal.rows == ["before", "<over>"]


#
# what decides that
#


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        *(("", 1), ("abc", 1), ("x" * 10, 1), ("x" * 11, 2), ("x" * 10 + "\n", 2), ("a\n\nb", 3)),
        *(("文" * 5, 1), ("文" * 6, 2), ("x" * 9 + "文", 2), ("x" * 9 + "文" * 6, 3)),
    ],
)
def test_rows_of_code_are_counted_as_a_terminal_wraps(text: str, rows: int) -> None:
    counted: Wrapped[None] = Wrapped(10)
    counted.push("```\n")
    for char in text:
        counted.push(char)
    assert (counted.rows - 1, counted.certain) == (rows, True)


@pytest.mark.parametrize(
    ("text", "sure"), [("é文😀 ok" * 3, True), ("e\u0301" * 8, False), ("e\u0301", True), ("🇩" * 6, False)]
)
def test_rows_of_code_are_sure_if_every_terminal_wraps_it_alike(text: str, sure: bool) -> None:
    counted: Wrapped[None] = Wrapped(10)
    counted.push(f"```\n{text}")
    assert counted.certain == sure


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("one two three four", ["one two", "three four"]),
        ("0123456789 abc", ["0123456789", "abc"]),
        ("0123456789   abc", ["0123456789", "abc"]),
        ("0123456789ab", ["0123456789", "ab"]),
        ("ab 0123456789ab", ["ab", "0123456789", "ab"]),
        ("文字文字文字", ["文字文字文", "字"]),
        ("x 文字文字文字", ["x 文字文字", "文字"]),
        ("abcdefg 👨\u200d👩\u200d👧", ["abcdefg", "👨\u200d👩\u200d👧"]),
        ("abcdefghi ⚠\ufe0f x", ["abcdefghi", "⚠\ufe0f x"]),
        ("  indented words", ["  indented", "words"]),
        ("a\n\nb", ["a", "", "b"]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_words_are_moved_whole(text: str, rows: list[str], size: int) -> None:
    wrapped: Wrapped[None] = Wrapped(10)
    screen = [""]
    for at in range(0, len(text), size):
        for written, _ in wrapped.push(text[at : at + size]):
            for part in re.split(r"(\r\x1b\[K|\n)", written):
                if part == "\n":
                    screen.append("")
                elif part.startswith("\r"):
                    screen[-1] = ""
                else:
                    screen[-1] += part
    assert [row.rstrip(" ") for row in screen] == rows
    assert (wrapped.rows, wrapped.certain) == (len(rows), True)


@pytest.mark.parametrize(
    ("text", "boundary"),
    [
        ("one\n\ntwo", 5),
        ("one\n\ntwo\n\n", 5),
        ("one\n\n\ntwo\n\nthree", 11),
        ("one\ntwo", 0),
        ("", 0),
        ("- a\n\n  more of a", 0),
        ("a\n\n```\nx\n\ny", 3),
        ("```\nx\n\ny\n```\n\nz", 14),
        ("~~~~\nx\n\n~~~\n\ny\n~~~~\n\nz", 21),
        ("a\n\n    indented code", 0),
    ],
)
def test_a_block_begins_after_a_blank_line_outside_of_code(text: str, boundary: int) -> None:
    assert last_boundary(text) == boundary


@pytest.mark.parametrize("text", ["plain", "two\nlines", "a\n\nb", "1 < 2 & <b>"])
def test_without_markup_there_is_nothing_to_render(text: str) -> None:
    assert rendered(text) is None


def test_printable_text_has_no_control_characters_but_newlines() -> None:
    every = "".join(map(chr, range(0x2100)))
    kept = Printable().push(every)
    assert [char for char in kept if ord(char) < 32 or 0x7F <= ord(char) < 0xA0] == ["\n"]
