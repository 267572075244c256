"""`via-sd-local complete`: one prompt, one answer."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ..errors import ModelError
from ..files import read_text
from .options import add_sampling, add_settings, sampling_from, settings_from
from .output import add_json
from .subcommands import Commands

DESCRIPTION = """\
Answer one prompt. The prompt is rendered by the model's chat template, if it has one; --raw continues it as it is.
"""


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("complete", help="answer one prompt", description=DESCRIPTION)
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt")
    prompt.add_argument(
        "--prompt-file", metavar="FILE", help="read the prompt from a file (UTF-8); - is standard input"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--chat-template", metavar="FILE", help="use this Jinja chat template instead of the model's own")
    form.add_argument("--raw", action="store_true", help="no chat template: the model continues the prompt")
    add_json(parser, "one JSON object with text, usage and statistics")
    add_settings(parser, verifier=None)
    add_sampling(parser)
    parser.set_defaults(command=run)


def read_prompt(args: argparse.Namespace) -> str:
    """Return the prompt; raises ModelError if its file cannot be read."""
    if args.prompt is not None:
        return str(args.prompt)
    if args.prompt_file == "-":
        if sys.stdin is None:
            raise ModelError("there is no prompt: standard input is closed")
        try:
            return sys.stdin.buffer.read().decode("utf-8")
        except UnicodeDecodeError:
            raise ModelError("the prompt on standard input is not UTF-8 text") from None
    return read_text(args.prompt_file, "prompt")


def run(args: argparse.Namespace) -> int:
    """Load the models, print the answer, and return the exit status."""
    settings = settings_from(args)
    if settings.draft_tokens is not None and not settings.drafter_kinds:
        raise ValueError("--draft-tokens is given, but nothing drafts: name a draft model (--draft) or a --drafter")
    prompt = read_prompt(args)

    from ..session.session import Session

    sampling = sampling_from(args)
    template = read_text(args.chat_template, "chat template") if args.chat_template is not None else None
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
