"""The loop of a conversation in a terminal: read a message, then answer it or carry out its command."""

from __future__ import annotations

from ..errors import ViaSdError
from .chat import Chat
from .commands.command import Leave
from .commands.registry import carry_out, is_command
from .reader import Discarded, Reader
from .sampling_text import describe
from .terminal import echo_off


def talk(chat: Chat, reader: Reader) -> int:
    """Talk until `/exit`, the end of input, or two Ctrl-C in a row (KeyboardInterrupt); return the exit status."""
    session = chat.dialogue.session
    mode, sampling = session.engine.policy.mode.value, describe(chat.dialogue.sampling.params)
    chat.display.note(f"{session.model.path.name}, {mode} mode, {sampling}; /help for commands")
    while True:
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
            chat.interrupted = True
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
            if chat.interrupted:
                raise
            chat.interrupted = True
            chat.display.note("[stopped]")
