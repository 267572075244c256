"""Bars are drawn on terminals only; elsewhere stages are lines and bytes are silent."""

from __future__ import annotations

import io
import re
import sys

import pytest

from via_sd_local.progress import StageBars, byte_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal; not as a fixture, since pytest sets the stream anew before the test itself."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return terminal


def stages(*, shown: bool) -> None:
    with StageBars(shown=shown) as bars:
        bars.stage("answers", 4)
        bars.step(2)
        bars.set(3, "[b]three[/b]")
        bars.end("all of them")
        bars.stage("search", 10, "Ctrl-C ends it early")


def count(*, shown: bool) -> None:
    with byte_bar(2_000_000, "writing [x].gguf", shown) as bar:
        bar.advance(500_000)
        bar.set(1_000_000)


def test_a_pipe_gets_a_line_a_stage_and_no_byte_bar(capsys: pytest.CaptureFixture[str]) -> None:
    stages(shown=True)
    count(shown=True)
    assert capsys.readouterr().err == "answers …\n  all of them\nsearch: Ctrl-C ends it early\n"


def test_nothing_is_printed_if_not_wanted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stages(shown=False)
    assert capsys.readouterr() == ("", "")
    terminal = on_terminal(monkeypatch)
    stages(shown=False)
    count(shown=False)
    assert terminal.getvalue() == ""


def test_a_terminal_gets_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    stages(shown=True)
    assert "answers" in terminal.getvalue()
    assert "all of them" in terminal.getvalue()
    assert "answers …" not in terminal.getvalue()


def test_bytes_are_counted_in_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    count(shown=True)
    assert "writing [x].gguf" in terminal.getvalue()
    assert "1.0/2.0 MB" in terminal.getvalue()


def test_in_80_columns_the_times_are_whole_and_a_long_note_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    with StageBars(shown=True) as bars:
        bars.stage("thresholds", 10)
        bars.stage("search", 10)
        bars.set(5, "1234 masks; best skips 44 %, agrees 92.5 %; and what is too much")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    last = [line.strip() for line in re.split(r"[\r\n]", text) if line.strip()][-1]
    assert re.match(r"search +\S+ 0:[0-9:]{5} [-0-9]:[-0-9:]{5} 1234 masks; best skips 44 %, agrees 92", last)
    assert last.endswith("…")
    assert len(last) <= 80


def test_in_80_columns_a_byte_bar_is_one_line_and_a_long_name_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    with byte_bar(98_400_000, "writing SmolLM2-135M-Instruct.Q4_1.gguf", True) as bar:
        bar.set(92_500_000)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    last = [line.strip() for line in re.split(r"[\r\n]", text) if line.strip()][-1]
    assert re.match(r"writing SmolLM2-135M-Inst\S*… \S+.* 92.5/98.4 MB ", last)
    assert len(last) <= 80
