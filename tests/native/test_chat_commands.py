"""The / commands, carried out without a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import conversations
import pytest
from conversations import Talking, ask, converse

from via_sd_local.chat.commands.help import help_text
from via_sd_local.chat.commands.registry import COMMANDS, completions, is_command
from via_sd_local.chat.conversation import Conversation
from via_sd_local.chat.reader import Discarded
from via_sd_local.chat.shade import Shade, shade_of
from via_sd_local.sampling.recommended import ChosenSampling
from via_sd_local.session.settings import MODES

talking, tiny_path = conversations.talking, conversations.tiny_path


def test_every_command_of_the_list_is_there() -> None:
    documented = (Path(__file__).parents[2] / "docs/chat.md").read_text(encoding="utf-8")
    names = [
        *("/show", "/set", "/model", "/mode", "/draft", "/system", "/regen", "/continue", "/undo", "/read", "/copy")
    ]
    names += ["/save", "/load", "/resume", "/clear", "/stats", "/colors", "/help", "/exit"]
    assert [command.name for command in COMMANDS] == names
    for command in COMMANDS:
        for name in (command.name, *command.aliases):
            assert re.search(rf"^\| .*`{re.escape(name)}[ `]", documented, re.MULTILINE), f"{name} is not documented"
    for width in (40, 80, 200):
        lines = help_text(COMMANDS, width).splitlines()
        assert max(map(len, lines)) <= width
        assert [line.split()[0] for line in lines if line.startswith("/")] == [command.name for command in COMMANDS]
    for words in ("Ctrl-C stops an answer", "Ctrl-D leaves", "Alt-Enter"):
        assert words in help_text(COMMANDS, 200)
    modes = next(line for line in help_text(COMMANDS, 200).splitlines() if line.startswith("/mode "))
    assert set(re.findall(r"\w+", modes)) > set(MODES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, True) for text in ("/exit", "/mode sd", "/nonsense", "/", "/?", "exit", "quit")),
        *((text, False) for text in ("/usr/bin/env?", "// a comment", "/* code */", "/help\nme", "a /help", "")),
        *((text, False) for text in ("exit now", "Exit", "bye", "/?!")),
    ],
)
def test_a_command_is_one_line_that_begins_with_a_word_after_a_slash(text: str, expected: bool) -> None:
    assert is_command(text) == expected


def test_an_unknown_command_and_one_with_too_much_are_errors_and_the_chat_goes_on(talking: Talking) -> None:
    _, display = converse(talking(), "/nonsense now", "/clear all", "/help")
    assert display.of("error") == [
        "unknown command /nonsense; /help lists the commands",
        "/clear takes no argument, but was given 'all'",
    ]
    assert display.of("show") == [help_text(COMMANDS, display.width)]


def test_what_is_no_command_is_asked(talking: Talking) -> None:
    dialogue = talking()
    converse(dialogue, "/usr/bin", "  ", "one\n/exit", "/exit", "never read")
    assert [turn["content"] for turn in dialogue.conversation.turns[::2]] == ["/usr/bin", "one\n/exit"]


@pytest.mark.parametrize("leave", ["/exit", "/bye", "/quit", "exit", "quit"])
def test_the_chat_is_left_by_the_words_of_other_programs_too(leave: str, talking: Talking) -> None:
    dialogue = talking()
    _, display = converse(dialogue, "/?", leave, "never read")
    assert display.of("show") == [help_text(COMMANDS, display.width)]
    assert dialogue.conversation.turns == []


def test_stats_reports_on_the_last_answer_and_has_all_counters_as_json(talking: Talking) -> None:
    dialogue = talking("be short")
    _, display = converse(dialogue, "/stats", "the sea", "/stats", "/stats --json", "/stats --all")
    stats = dialogue.session.engine.stats
    report, counters = display.of("show")
    assert report.splitlines()[0].startswith("answer       5 tokens in ")
    assert f"context      {stats.prompt_tokens + 5} of 256 tokens" in report.splitlines()
    assert json.loads(counters) == stats.to_json()
    assert display.of("error") == [
        "there is no answer yet",
        "/stats takes --json, or no argument; it was given '--all'",
    ]


def test_after_each_answer_there_is_a_status_line(talking: Talking) -> None:
    dialogue = talking()
    _, display = converse(dialogue, "the sea")
    context = dialogue.session.engine.stats.prompt_tokens + 5
    assert display.of("note")[1:2] == ["(cut short by --max-tokens; /continue goes on)"]
    assert re.fullmatch(rf"\[5 tokens, [\d.]+ tokens/s, context {context}/256\]", display.of("note")[2])


def test_an_answer_that_fills_the_context_says_so(talking: Talking) -> None:
    _, display = converse(talking(n_ctx=32, max_tokens=None), "a b")
    assert "(cut short: the context is full)" in display.of("note")
    assert "context 32/32]" in display.of("note")[-1]


def test_clear_forgets_the_turns_and_keeps_the_system_message(talking: Talking) -> None:
    dialogue = talking("be short")
    converse(dialogue, "one", "/clear", "two")
    assert [m["content"] for m in dialogue.form.messages] == ["be short", "two"]  # type: ignore[attr-defined]


def test_system_shows_sets_and_removes_the_message(talking: Talking) -> None:
    dialogue = talking("be short")
    _, display = converse(dialogue, "one", "/system", "/system speak  like a pirate", "two", "/system none", "/system")
    roles = [m["role"] for m in dialogue.form.messages]  # type: ignore[attr-defined]
    assert (roles, dialogue.form.messages[0]["content"]) == (
        ["system", "user", "assistant", "user"],
        "speak  like a pirate",
    )  # type: ignore[attr-defined]
    said = [note for note in display.of("note") if "system message" in note]
    assert said == [
        "(system message: be short)",
        "(system message: speak  like a pirate)",
        "(no system message)",
        "(no system message)",
    ]
    assert dialogue.conversation.system is None


def test_undo_takes_the_last_exchange_back(talking: Talking) -> None:
    dialogue = talking()
    _, display = converse(dialogue, "one", "two\nlines", "/undo", "three", "/undo", "/undo", "/undo")
    assert dialogue.conversation.turns == []
    notes = [note for note in display.of("note") if note.startswith("(removed")]
    assert notes == ["(removed: two…)", "(removed: three)", "(removed: one)"]
    assert display.of("error") == ["there is no message yet"]


def test_regen_asks_the_same_again_in_the_same_place(talking: Talking) -> None:
    dialogue = talking()
    _, display = converse(dialogue, "one", "two", "/regen")
    answers = display.of("answer")
    assert answers[1] == answers[2]  # at temperature 0
    assert any("temperature 0" in note for note in display.of("note"))
    assert [turn["content"] for turn in dialogue.conversation.turns] == ["one", answers[0], "two", answers[2]]
    assert converse(talking(), "/regen")[1].of("error") == ["there is no message yet"]


def test_regen_at_a_temperature_draws_other_answers_also_with_a_seed(talking: Talking) -> None:
    dialogue = talking()
    dialogue.sampling = ChosenSampling({"temperature": 1.0, "seed": 7})
    _, display = converse(dialogue, "one", "/regen", "/regen", "/regen 0")
    assert len(set(display.of("answer"))) == 4
    greedy = talking()
    assert display.of("answer")[3] == ask(greedy, "one")
    _, display = converse(greedy, "/regen warm", "/regen -1")
    errors = display.of("error")
    assert errors[0] == "temperature is 'warm'; it must be a number, 0 or larger"
    assert "temperature is -1.0" in errors[1]
    assert len(greedy.conversation.turns) == 2


@pytest.mark.parametrize("exchanges", [1, 2])
def test_a_regeneration_that_fails_or_is_stopped_at_once_leaves_the_old_answer(
    exchanges: int, talking: Talking, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialogue = talking()
    converse(dialogue, *["one", "two"][:exchanges])
    before = list(dialogue.conversation.turns)

    def stopped(*_args: object, **_kwargs: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(dialogue.session.engine.verifier, "full", stopped)
    converse(dialogue, "/regen")
    assert dialogue.conversation.turns == before
    monkeypatch.undo()
    dialogue.sampling = ChosenSampling({"grammar": "root ::= ("})
    _, display = converse(dialogue, "/regen")
    assert "grammar" in display.of("error")[0]
    assert dialogue.conversation.turns == before


def test_save_and_load_keep_a_conversation_and_its_answers_go_on_alike(talking: Talking, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    dialogue = talking("be short")
    _, display = converse(dialogue, "one", f"/save {path}", "two", "/save", "three")
    assert display.of("note").count(f"(saved to {path})") == 2
    other = talking()
    chat, display = converse(other, f"/load {path}", "three")
    assert chat.file == path
    loaded = display.of("note").index(f"(loaded 2 exchanges from {path})")
    assert display.of("note")[loaded + 1 : loaded + 3] == ["(system message: be short)", "> two"]
    assert display.of("answer")[0] == dialogue.conversation.turns[3]["content"]
    assert other.conversation == dialogue.conversation
    assert [file.name for file in tmp_path.iterdir()] == ["talk.json"]


def test_load_replaces_no_conversation_that_is_not_saved(talking: Talking, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    dialogue = talking()
    _, display = converse(dialogue, "one", f"/save {path}", "two\nlines", "/load", f"/load {path}")
    refusal = "the present conversation (2 exchanges) is not saved; /save FILE keeps it, /clear drops it"
    assert display.of("error") == [refusal] * 2
    assert len(dialogue.conversation.turns) == 4
    _, display = converse(dialogue, f"/save {path}", f"/load {path}", "/clear", "/load " + str(path))
    assert display.of("error") == []
    assert display.of("note").count("> two…") == 2


def test_save_and_load_refuse_what_they_cannot_do(talking: Talking, tmp_path: Path) -> None:
    precious = tmp_path / "notes.txt"
    precious.write_text("precious")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    dialogue = talking()
    ask(dialogue, "one")
    turns = list(dialogue.conversation.turns)
    _, display = converse(
        dialogue,
        *("/save", f"/save {precious}", f"/save {binary}", f"/save {tmp_path}", f"/save {tmp_path}/no/such.json"),
        *("/save ~nosuchuser/x.json", "/load ~nosuchuser/x.json"),
        *("/load", f"/load {precious}", f"/load {binary}", f"/load {tmp_path}/absent.json"),
    )
    errors = display.of("error")
    expected = ["/save needs a file name", *["choose another name"] * 3, "cannot be written: No such file"]
    expected += [
        "~nosuchuser/x.json cannot be written: No such file",
        "~nosuchuser/x.json cannot be read: No such file",
        "/load needs a file name",
        "notes.txt: not a saved",
        "binary: not a saved",
        "cannot be read: No such",
    ]
    assert len(errors) == len(expected)
    for error, words in zip(errors, expected, strict=True):
        assert words in error
    assert precious.read_text() == "precious"
    assert dialogue.conversation.turns == turns


def test_mode_and_draft_switch_while_the_conversation_goes_on(talking: Talking, tiny_path: Path) -> None:
    dialogue = talking(max_tokens=20)
    verifier = dialogue.session.engine.verifier
    _, display = converse(
        dialogue,
        *("the sea", "/mode sd", "/draft lookup", "/regen", "/mode exact", "/mode exact 2-3", "/regen"),
        *(f"/draft {tiny_path}", "/regen", "/mode tiered", "/mode nonsense", "/mode plain", "/regen", "/mode exact"),
        *("/draft absent.gguf", "/draft none", "/mode", "/draft"),
    )
    assert display.of("error") == [
        "mode 'sd' needs a drafter; choose one with /draft MODEL or /draft lookup",
        "mode 'exact' needs a mask, and there is no profile of this verifier: give one (mask, e.g. 12-17), or search "
        "for one: via-sd-local calibrate",
        "mode is 'nonsense'; it is one of auto, plain, sd, exact, lenient, tiered, viasd",
        "absent.gguf does not exist; check the path",
    ]
    notes = [note for note in display.of("note") if note.startswith("(mode")]
    own = f"drafts from {tiny_path}, the slim tier skips 2-3)"
    assert notes == [
        "(mode sd, drafts from lookup)",
        "(mode exact, drafts from lookup, the slim tier skips 2-3)",
        f"(mode exact, {own}",
        f"(mode tiered, {own}",
        "(mode plain)",
        f"(mode exact, {own}",
        *["(mode plain)"] * 3,
    ]
    assert len(set(display.of("answer"))) == 1  # lossless
    assert dialogue.session.engine.verifier.model is verifier.model


def test_a_tiered_answer_is_called_lossy_and_compared_with_plain(talking: Talking, tiny_path: Path) -> None:
    dialogue = talking(max_tokens=20, draft=str(tiny_path), mode="tiered", mask="2")
    _, display = converse(dialogue, "the sea")
    status = display.of("note")[-1]
    assert re.search(r" tokens/s, [\d.]+ × plain \([\d.]+\), draft \d+% slim \d+% full \d+%, lossy: ", status)  # noqa: RUF001


def test_colors_show_the_last_answer_and_the_next_ones_by_shade_with_a_legend(talking: Talking) -> None:
    dialogue = talking()
    _, display = converse(dialogue, "/colors", "/colors", "one", "/colors", "two", "/colors", "three")
    kinds = [kind for kind, _ in display.said if kind in ("answer", "colored")]
    assert kinds == ["answer", "colored", "colored", "answer"]
    texts = display.of("colored")
    assert texts[0] == display.of("answer")[0] == dialogue.conversation.turns[1]["content"]
    assert display.legends == [{Shade.FULL: 1}, {Shade.FULL: 1}]
    assert "(colours on; full: the full model's own tokens)" in display.of("note")


@pytest.mark.parametrize(
    ("mode", "options"), [("sd", {}), ("exact", {"mask": "2"}), ("tiered", {"mask": "2", "thresholds": "joint:1,1"})]
)
def test_accepted_drafts_have_a_colour_of_their_own_in_every_mode(
    mode: str, options: dict[str, str], talking: Talking, tiny_path: Path
) -> None:
    dialogue = talking(draft=str(tiny_path), mode=mode, max_tokens=20, **options)
    _, display = converse(dialogue, "/colors", "the sea")
    stats = dialogue.session.engine.stats
    shares = display.legends[0]
    drafted = sum(shade_of(piece) is Shade.ACCEPTED for piece in dialogue.pieces)
    assert drafted == stats.accepted > 0  # the verifier is its own draft model, so that all is accepted
    assert shares[Shade.ACCEPTED] == drafted / 20
    assert sum(shares.values()) == pytest.approx(1)
    assert list(shares) == (list(Shade) if mode == "tiered" else [Shade.ACCEPTED, Shade.FULL])


def test_where_there_are_no_colours_colors_says_why(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations.Recording, "can_color", False)
    _, display = converse(talking(), "/colors", "one")
    assert "NO_COLOR" in display.of("error")[0]
    assert display.legends == []


def test_ctrl_c_leaves_only_when_pressed_twice_in_a_row(talking: Talking) -> None:
    ctrl_c, discarded = KeyboardInterrupt(), Discarded()
    _, display = converse(talking(), ctrl_c, "/clear", ctrl_c, "", ctrl_c, discarded, ctrl_c, "/exit")
    assert display.of("note").count("(to leave, press Ctrl-C again or Ctrl-D, or type /exit)") == 4
    for messages in ([ctrl_c, ctrl_c], [discarded, ctrl_c, ctrl_c]):
        with pytest.raises(KeyboardInterrupt):
            converse(talking(), *messages)


def test_ctrl_c_in_an_answer_never_leaves_and_the_next_one_says_how_to(
    talking: Talking, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialogue = talking()

    def stopped(*_args: object, **_kwargs: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(dialogue.session.engine.verifier, "full", stopped)
    _, display = converse(dialogue, "one", "two", KeyboardInterrupt(), "/help")
    assert display.of("answer") == [" [stopped]"] * 2
    assert display.of("note")[-1] == "(to leave, press Ctrl-C again or Ctrl-D, or type /exit)"
    with pytest.raises(KeyboardInterrupt):
        converse(dialogue, "one", KeyboardInterrupt(), KeyboardInterrupt())


def test_a_warning_waits_for_the_end_of_the_answer(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    dialogue = talking(drafter="lookup", max_tokens=3)
    drafter = dialogue.session.engine.drafters[0]

    def fails(*_args: object) -> Any:
        raise OSError("gone")

    monkeypatch.setattr(drafter, "propose", fails)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        _, display = converse(dialogue, "one")
    kinds = [kind for kind, _ in display.said]
    assert kinds.index("answer") < display.said.index(
        ("note", "warning: the drafter failed (gone); going on without drafts")
    )


#
# completion
#


def complete(text: str) -> list[str]:
    return [text[: len(text) + start] + end for start, end in completions(text)]


def test_commands_modes_and_drafters_are_completed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert complete("/s") == ["/show", "/set", "/system", "/save", "/stats"]
    assert complete("/set top") == ["/set top_k", "/set top_p"]
    assert len(complete("/")) == len(COMMANDS)
    assert complete("/mode ") == [
        "/mode auto",
        "/mode plain",
        "/mode sd",
        "/mode exact",
        "/mode lenient",
        "/mode tiered",
        "/mode viasd",
    ]
    assert complete("/mode t") == ["/mode tiered"]
    assert complete("/ret") == ["/retry"]
    assert complete("/exit x") == complete("/mode tiered 1") == complete("/x") == []
    monkeypatch.setenv("VIA_SD_HOME", str(tmp_path))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.gguf").touch()
    assert complete("/draft ") == ["/draft lookup", "/draft none", "/draft mine.gguf"]


def test_file_names_are_completed(tmp_path: Path) -> None:
    for name in ("talk.json", "tale.txt", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "talks").mkdir()
    assert complete(f"/load {tmp_path}/tal") == [
        f"/load {tmp_path}/{name}" for name in ("tale.txt", "talk.json", "talks")
    ]
    assert len(complete(f"/save {tmp_path}/")) == 3
    assert complete(f"/save {tmp_path}/.") == [f"/save {tmp_path}/.hidden"]
    assert complete(f"/load {tmp_path}/absent/") == []


def test_a_saved_conversation_can_be_read_by_its_class(talking: Talking, tmp_path: Path) -> None:
    dialogue = talking()
    converse(dialogue, "one", f"/save {tmp_path / 'a.json'}")
    assert Conversation.from_json((tmp_path / "a.json").read_text(encoding="utf-8")) == dialogue.conversation
