"""`via-sd-local complete`: one prompt, one answer."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ..errors import ModelError
from ..files import read_text
from .options import DEFAULT_MODEL, add_sampling, add_settings, sampling_from, settings_from
from .output import add_json, note_if_cut
from .subcommands import Commands

DESCRIPTION = """\
Answer one prompt, by default the text on standard input. The prompt is rendered by the model's chat template, if it has
one; --raw continues it as it is. A model of the catalogue or hf:… that is not on this machine is fetched first.
"""


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("complete", help="answer one prompt", description=DESCRIPTION)
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("text", metavar="PROMPT", nargs="?", help="the prompt (default: standard input; also -)")
    prompt.add_argument("--prompt", metavar="TEXT", help="the same as an option")
    prompt.add_argument(
        "--prompt-file", metavar="FILE", help="read the prompt from a file (UTF-8); - is standard input"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--chat-template", metavar="FILE", help="use this Jinja chat template instead of the model's own")
    form.add_argument("--raw", action="store_true", help="no chat template: the model continues the prompt")
    add_json(parser, "one JSON object with text, usage and statistics")
    add_settings(parser, verifier=DEFAULT_MODEL)
    add_sampling(parser)
    parser.set_defaults(command=run)


def read_prompt(args: argparse.Namespace) -> str:
    """Return the prompt; raises ModelError if there is none or its file cannot be read.

    Like the shell's `$(…)`, standard input loses its last line break, which `echo` adds; a file is taken as it is.
    """
    if args.prompt is not None:
        return str(args.prompt)
    if args.text not in (None, "-"):
        return str(args.text)
    if args.prompt_file not in (None, "-"):
        return read_text(args.prompt_file, "prompt")
    if sys.stdin is None:
        raise ModelError("there is no prompt: standard input is closed")
    if args.text is None and args.prompt_file is None and sys.stdin.isatty():
        raise ModelError('there is no prompt: complete "PROMPT", or pipe a text into it (`via-sd-local chat` talks)')
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError("the prompt on standard input is not UTF-8 text") from None
    return text if args.prompt_file is not None else text.removesuffix("\n").removesuffix("\r")


def run(args: argparse.Namespace) -> int:
    """Load the models, print the answer, and return the exit status."""
    settings = settings_from(args)
    if settings.draft_tokens is not None and not settings.drafter_kinds:
        raise ValueError("--draft-tokens is given, but nothing drafts: name a draft model (--draft) or a --drafter")
    prompt = read_prompt(args)

    from ..catalog.fetching import fetch_missing
    from ..session.session import Session

    sampling = sampling_from(args)
    template = read_text(args.chat_template, "chat template") if args.chat_template is not None else None
    fetch_missing(settings.verifier, settings.draft, progress=not args.json)
    with Session(settings) as session:
        answer = session.stream(
            prompt, max_tokens=args.max_tokens, sampling=sampling, raw=args.raw, chat_template=template
        )
        parts: list[str] = []
        for text in answer:
            parts.append(text)
            if not args.json:
                print(text, end="", flush=True)
        stats = session.engine.stats
        if session.engine.why_no_drafts:
            print(f"warning: no drafts were made: {session.engine.why_no_drafts}", file=sys.stderr)
        if session.engine.why_no_slim:
            print(f"warning: the slim tier was never asked: {session.engine.why_no_slim}", file=sys.stderr)
        if not args.json:
            print()
            note_if_cut(session.finish_reason, stats, session.engine.verifier.context.n_ctx)
            return 0
        result: dict[str, Any] = {
            "text": "".join(parts),
            "finish_reason": session.finish_reason,
            "usage": {
                "prompt_tokens": stats.prompt_tokens,
                "completion_tokens": stats.completion_tokens,
                "total_tokens": stats.prompt_tokens + stats.completion_tokens,
            },
            "stats": stats.to_json(),
        }
        print(json.dumps(result, ensure_ascii=not (sys.stdout.encoding or "").lower().startswith("utf")))
    return 0
