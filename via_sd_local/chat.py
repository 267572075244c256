"""`python -m via_sd_local.chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import console
from .errors import ViaSdError
from .options import add_sampling, add_settings, sampling_from, settings_from
from .text import Utf8Stream, read_text

if TYPE_CHECKING:
    from .chat_format import ChatFormat, Message
    from .sampling import SamplingParams
    from .session import Session
    from .settings import Settings

DEFAULT_MODEL = "smollm2-135m"
MIN_ANSWER = 64  # tokens of context that a prompt leaves free, or the oldest turns go

DESCRIPTION = """\
Talk to a model. A prompt on standard input gives one answer; in a terminal, /help lists the commands.
"""

HELP = """\
/clear   forget the conversation
/stats   figures of the last answer
/exit    leave (so does the end of input, Ctrl-D)
Ctrl-C   stops an answer; at the prompt it leaves"""


class Conversation:
    """The turns so far, and how they become the next prompt."""

    def __init__(self, session: Session, form: ChatFormat, system: str | None) -> None:
        self.session = session
        self.form = form
        self.head: list[Message] = [{"role": "system", "content": system}] if system else []
        self.turns: list[Message] = []

    def prompt_for(self, text: str) -> tuple[list[int], int]:
        """The tokens that ask `text`, and how many old turns were dropped to make them fit.

        Raises ValueError when the message does not fit even alone.
        """
        n_ctx = self.session.engine.verifier.context.n_ctx
        room = n_ctx - min(MIN_ANSWER, n_ctx // 4)
        message: Message = {"role": "user", "content": text}
        dropped = 0
        while True:
            tokens = self.form.tokens([*self.head, *self.turns[dropped:], message])
            if len(tokens) <= room:
                del self.turns[:dropped]
                return tokens, dropped
            if dropped == len(self.turns):
                raise ValueError(
                    f"this message takes {len(tokens)} tokens, {len(tokens) - room} more than fit: the context has "
                    f"{n_ctx} (--n-ctx), of which {n_ctx - room} are kept for the answer"
                )
            dropped += 2

    def answer(self, text: str, max_tokens: int | None, sampling: SamplingParams) -> Iterator[str]:
        """The answer to `text`, as it comes; both become turns, also if the answer is not read to its end."""
        tokens, dropped = self.prompt_for(text)
        if dropped:
            print(f"(the context is full: the {dropped} oldest messages were dropped)", file=sys.stderr)
        steps = self.session.engine.generate(tokens, max_tokens=max_tokens, sampling=sampling)
        stream = Utf8Stream()
        said: list[str] = []
        try:
            for step in steps:
                said.append(stream.push(b"".join(map(self.session.model.piece, step.tokens))))
                yield said[-1]
            said.append(stream.finish())
            yield said[-1]
        finally:
            self.turns += [{"role": "user", "content": text}, {"role": "assistant", "content": "".join(said)}]


def build_parser() -> argparse.ArgumentParser:
    """The chat's options."""
    parser = argparse.ArgumentParser(prog="python -m via_sd_local.chat", description=DESCRIPTION)
    parser.add_argument("--system", metavar="TEXT", help="a system message that goes before the conversation")
    parser.add_argument(
        "--chat-template", metavar="FILE", help="use this Jinja chat template instead of the model's own"
    )
    add_settings(parser, verifier=DEFAULT_MODEL)
    add_sampling(parser)
    return parser


def fetch_if_known(settings: Settings) -> None:
    """Fetch the models that the catalogue knows and that are not here yet."""
    from .catalog import is_known, pull, resolve
    from .errors import ModelError

    for name in filter(None, (settings.verifier, settings.draft)):
        try:
            resolve(name)
        except ModelError:
            if not is_known(name):
                raise
            print(f"fetching the model {name} (once; `via-sd-local models list` shows where it goes)", file=sys.stderr)
            pull(name)


def run(args: argparse.Namespace) -> int:
    """Load the models and talk; returns the exit status."""
    settings = settings_from(args)

    from .chat_format import ChatFormat
    from .session import Session

    sampling = sampling_from(args)
    template = read_text(args.chat_template, "chat template") if args.chat_template is not None else None
    fetch_if_known(settings)
    with Session(settings) as session:
        conversation = Conversation(session, ChatFormat(session.model, template), args.system)
        if sys.stdin is None:
            return 0
        if sys.stdin.isatty():
            return talk(conversation, args.max_tokens, sampling)
        text = sys.stdin.buffer.read().decode("utf-8", "replace").strip()
        if text:
            for part in conversation.answer(text, args.max_tokens, sampling):
                print(part, end="", flush=True)
            print()
    return 0


def talk(conversation: Conversation, max_tokens: int | None, sampling: SamplingParams) -> int:
    """The loop in a terminal: read, answer, until /exit or the end of input."""
    import readline  # noqa: F401 - gives input() line editing and history

    session = conversation.session
    print(f"{session.model.path.name}, {session.engine.policy.mode.value} mode; /help for commands", file=sys.stderr)
    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            print()
            return 0
        if not text:
            continue
        if text.startswith("/"):
            if text == "/exit":
                return 0
            command(text, conversation)
            continue
        try:
            for part in conversation.answer(text, max_tokens, sampling):
                print(part, end="", flush=True)
            print()
        except KeyboardInterrupt:
            print(" [stopped]")
        except (ValueError, ViaSdError) as error:
            print(f"error: {error}", file=sys.stderr)
            continue
        print(status_line(session), file=sys.stderr)


def command(text: str, conversation: Conversation) -> None:
    """Carry out a / command other than /exit."""
    if text == "/clear":
        conversation.turns.clear()
        print("(the conversation is forgotten)", file=sys.stderr)
    elif text == "/stats":
        for name, value in conversation.session.engine.stats.to_json().items():
            print(f"{name}: {value}")
    elif text == "/help":
        print(HELP)
    else:
        print(f"{text.split()[0]} is no command; /help lists them", file=sys.stderr)


def status_line(session: Session) -> str:
    """One line about the last answer."""
    stats = session.engine.stats
    used = stats.prompt_tokens + stats.completion_tokens
    parts = [f"{stats.completion_tokens} tokens"]
    if stats.tokens_per_second is not None:
        parts.append(f"{stats.tokens_per_second:.1f} tokens/s")
    if stats.rejection_rate is not None:
        parts.append(f"{1 - stats.rejection_rate:.0%} of {stats.drafted} drafted tokens accepted")
    if session.engine.no_drafts:
        parts.append(f"no drafts: {session.engine.no_drafts}")
    if stats.mode == "tiered":
        parts.append("lossy: " + deviation_text(stats.deviation))
    parts.append(f"context {used}/{session.engine.verifier.context.n_ctx}")
    return f"[{', '.join(parts)}]"


def deviation_text(deviation: float | None) -> str:
    """What the audits say of a tiered answer."""
    return "not audited yet" if deviation is None else f"about {deviation:.1%} not the full model's choice, by audit"


def main(argv: list[str] | None = None) -> int:
    """Run the chat; returns the exit status (1: error, 2: wrong usage)."""
    args = build_parser().parse_args(argv)
    return console.run(lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
