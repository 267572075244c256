"""The line that says what is being done."""

from __future__ import annotations

import io
import threading
import time
from itertools import groupby

from via_sd_local.chat.activity import Activity


def lines(written: str) -> list[str]:
    """What was on the row, one after the other."""
    return written.split("\r\x1b[K")[1:]


def test_the_line_is_replaced_and_removed() -> None:
    out = io.StringIO()
    activity = Activity(out)
    activity.show("loading big.gguf", 80)
    activity.show("reading 900 tokens", 80)
    activity.clear()
    activity.clear()
    shown = [line.lstrip("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ ") for line in lines(out.getvalue())]
    assert [line for line, _ in groupby(shown)] == ["loading big.gguf …", "", "reading 900 tokens …", ""]


def test_the_spinner_turns_until_the_line_is_removed() -> None:
    out = io.StringIO()
    activity = Activity(out)
    before = threading.active_count()
    activity.show("measuring", 80)
    while len(lines(out.getvalue())) < 4:
        time.sleep(0.01)
    activity.clear()
    shown = lines(out.getvalue())
    assert shown[:4] == ["⠋ measuring …", "⠙ measuring …", "⠹ measuring …", "⠸ measuring …"]
    assert shown[-1] == ""
    assert threading.active_count() == before


def test_the_line_never_wraps() -> None:
    out = io.StringIO()
    activity = Activity(out)
    activity.show("loading " + "文" * 40, 20)
    activity.clear()
    assert lines(out.getvalue())[0] == "⠋ loading 文文文文"
