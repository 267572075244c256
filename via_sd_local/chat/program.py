"""The options of the chat, and its start."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .._version import version
from ..cli.options import DEFAULT_MODEL, add_sampling, add_settings, given_sampling, settings_from
from ..cli.output import note_if_cut
from ..cli.parser import Parser
from ..cli.subcommands import Commands
from ..files import read_text

if TYPE_CHECKING:
    from .archive import Journal
    from .dialogue import Dialogue
    from .display import Display

DESCRIPTION = """\
Talk to a model. A prompt on standard input gives one answer. In a terminal, /help lists the commands.
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `python -m via_sd_local.chat`."""
    parser = Parser(prog="python -m via_sd_local.chat", description=DESCRIPTION)
    _add_options(parser)
    return parser


def add_parser(commands: Commands) -> None:
    """Add the subcommand `chat` of `via-sd-local`."""
    parser = commands.add_parser("chat", help="talk to a model in the terminal", description=DESCRIPTION)
    _add_options(parser)
    parser.set_defaults(command=run)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action="version", version=f"via-sd-local {version()}")
    parser.add_argument(
        "-c", "--continue", dest="goes_on", action="store_true", help="go on with the last conversation"
    )
    parser.add_argument("--system", metavar="TEXT", help="a system message, which precedes the conversation")
    parser.add_argument(
        "--chat-template", metavar="FILE", help="use this Jinja chat template instead of the model's own"
    )
    add_settings(parser, verifier=DEFAULT_MODEL)
    add_sampling(parser, recommended=True)


def run(args: argparse.Namespace) -> int:
    """Load the models, talk, and return the exit status."""
    settings = settings_from(args)
    piped = None if sys.stdin is not None and sys.stdin.isatty() else read_piped()
    if piped == "":
        return 0

    from contextlib import closing

    from ..catalog.fetching import fetch_missing
    from ..sampling.recommended import ChosenSampling
    from .archive import Archive, Journal
    from .conversation import Conversation
    from .conversation_file import load
    from .dialogue import Dialogue
    from .frontend import make_display
    from .held_warnings import warnings_after
    from .opening import OpenModel

    sampling = ChosenSampling(given_sampling(args))
    template = read_text(args.chat_template, "chat template") if args.chat_template is not None else None
    archive = Archive.of_user()
    path = archive.newest() if args.goes_on else None
    conversation = load(path) if path is not None else Conversation()
    unanswered = conversation.take_unanswered()
    if args.system is not None:
        conversation.system = args.system
    journal = Journal(archive, path)
    fetch_missing(settings.verifier, settings.draft)
    display = make_display()
    with warnings_after(display):
        opened = OpenModel.load(settings, template, display.working)
    dialogue = Dialogue(opened, conversation, sampling, args.max_tokens, display.working)
    with closing(dialogue):
        session = dialogue.session
        if piped is None:
            return talk(dialogue, display, journal, unanswered)
        with warnings_after(display):
            for pieces in dialogue.answer(piped, note=display.note):
                display.idle()
                print("".join(piece.text for piece in pieces), end="", flush=True)
            print()
        if path is not None:
            journal.write(dialogue.conversation)
        note_if_cut(dialogue.finish_reason, session.engine.stats, dialogue.n_ctx)
        if session.engine.why_no_drafts:
            print(f"warning: no drafts were made: {session.engine.why_no_drafts}", file=sys.stderr)
        if session.engine.why_no_slim:
            print(f"warning: the slim tier was never asked: {session.engine.why_no_slim}", file=sys.stderr)
    return 0


def read_piped() -> str:
    """Read the question on standard input; bytes that are not UTF-8 become U+FFFD."""
    return sys.stdin.buffer.read().decode("utf-8", "replace").strip() if sys.stdin is not None else ""


def talk(dialogue: Dialogue, display: Display, journal: Journal, unanswered: str | None) -> int:
    """Hold the conversation in a terminal; return the exit status. `unanswered` is its last message, if it had none."""
    from . import loop
    from .chat import Chat
    from .frontend import make_reader
    from .switches import Switches

    chat = Chat(dialogue, display, Switches(dialogue.session.settings), journal)
    loop.greet(chat)
    if dialogue.conversation.turns or unanswered is not None:
        chat.show_end(unanswered)
    return loop.talk(chat, make_reader())
