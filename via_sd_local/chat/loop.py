"""The loop of a conversation in a terminal: read a message, then answer it or carry out its command."""

from __future__ import annotations

from ..errors import ViaSdError
from .chat import Chat
from .commands.command import Leave
from .commands.registry import carry_out, is_command
from .endings import Ending
from .reader import Discarded, Reader
from .sampling_text import describe
from .terminal import echo_off


def talk(chat: Chat, reader: Reader) -> int:
    """Talk until `/exit`, the end of input, two Ctrl-C in a row at the prompt (KeyboardInterrupt), or a signal.

    Returns the exit status. The conversation is kept in every case.
    """
    ending = Ending()
    try:
        with ending.heard():
            return _talk(chat, reader, ending)
    finally:
        if chat.journal is not None and chat.journal.path is not None:
            chat.display.note("(kept: --continue goes on with this conversation, /resume with any)")


def greet(chat: Chat) -> None:
    """Say which model talks, and how."""
    session = chat.dialogue.session
    mode, sampling = session.engine.policy.mode.value, describe(chat.dialogue.sampling.params)
    chat.display.note(f"{session.model.path.name}, {mode} mode, {sampling}; /help for commands")


def _talk(chat: Chat, reader: Reader, ending: Ending) -> int:
    while ending.status is None:
        try:
            text = reader.read().strip()
        except EOFError:
            print()
            return 0
        except Discarded:
            chat.interrupted = False
            continue
        except KeyboardInterrupt:
            if chat.interrupted:
                raise
            chat.interrupted = ending.status is None
            if not chat.interrupted:
                break
            chat.display.note("(to leave, press Ctrl-C again or Ctrl-D, or type /exit)")
            continue
        chat.interrupted = False
        if not text:
            continue
        try:
            if is_command(text):
                with echo_off():
                    carry_out(chat, text)
            else:
                chat.ask(text)
        except Leave:
            return 0
        except (ValueError, ViaSdError) as error:
            chat.display.error(" ".join(str(error).split()))
        except KeyboardInterrupt:
            chat.display.note("[stopped]")
        finally:
            chat.keep()
    return ending.status or 0
