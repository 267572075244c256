"""The command-line options that say what to load and how to run it, shared by `complete` and the chat."""

from __future__ import annotations

import argparse

from ..files import read_text
from ..sampling.sampler import SamplingParams
from ..session.settings import DRAFTERS, MODES, Settings
from .placement_options import DRAFT, VERIFIER, add_placement, placement_from


def add_settings(parser: argparse.ArgumentParser, *, verifier: str | None) -> None:
    """Add the options of `Settings`; `verifier` is the default model, None makes the option required."""
    group = parser.add_argument_group("models and modes")
    group.add_argument(
        "--verifier",
        metavar="MODEL",
        default=verifier,
        required=verifier is None,
        help="the large model: a name from `via-sd-local models list`, a .gguf file, or hf:owner/repo/file.gguf"
        + (f" (default: {verifier})" if verifier else ""),
    )
    group.add_argument("--draft", metavar="MODEL", help="a smaller model with the same vocabulary that drafts")
    group.add_argument(
        "--drafter",
        choices=DRAFTERS,
        default="auto",
        help="what drafts: a draft model; a look into the text so far; the large model itself under --draft-mask; or "
        "lookup first, and another where it finds nothing (default: the draft model if there is one)",
    )
    group.add_argument(
        "--draft-mask",
        metavar="LAYERS",
        help="what the large model skips when it drafts for itself: 8-25 or a3,f3,8-25",
    )
    group.add_argument(
        "--mode",
        choices=MODES,
        default="auto",
        help="plain: no drafts; sd: drafts checked by the full model; exact: by the slim tier, then the full model; "
        "tiered: by the slim tier alone where it is sure - lossy, its text may differ from the full model's; "
        "auto: what the pair's routing profile recommends, lossless unless --max-deviation allows for more; without a "
        "profile sd with a drafter, else plain (default)",
    )
    group.add_argument(
        "--mask",
        metavar="LAYERS",
        help="what the slim tier skips: 12-17 or a3,f3,12-17 (exact, tiered; default: the profile's)",
    )
    group.add_argument(
        "--thresholds",
        metavar="RULE",
        help="when the slim tier decides: joint, confidence or ratio:ACCEPT,REWRITE (default: the profile's, else "
        "joint:0.5,0.5)",
    )
    group.add_argument(
        "--max-deviation",
        metavar="SHARE",
        type=float,
        help="the share of tokens that may differ from the full model's choice: auto is then tiered if the profile "
        "says that this pays; tiered takes the profile's thresholds for it, and spends it where that buys most speed "
        "(default: 0 in auto; in tiered no limit for the slim tier, nothing for the full model)",
    )
    group.add_argument(
        "--profile",
        metavar="PROFILE",
        default="auto",
        help="a file or name of `via-sd-local profiles list`; auto: the one that fits the models (default); none",
    )
    group.add_argument(
        "--draft-tokens", metavar="N", type=int, help="tokens a draft (default: automatic, by measured costs)"
    )
    group.add_argument(
        "--n-ctx", metavar="N", type=int, help="tokens of context (default: 4096, or what the model has)"
    )
    group.add_argument("--threads", metavar="N", type=int, help="threads (default: all cores)")
    add_placement(parser)
    add_ignore_memory(parser)


def add_ignore_memory(parser: argparse.ArgumentParser) -> None:
    """Add --ignore-memory."""
    parser.add_argument(
        "--ignore-memory", action="store_true", help="load the models even if there seems to be too little main memory"
    )


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add the options of `SamplingParams`, and --max-tokens."""
    group = parser.add_argument_group("sampling")
    group.add_argument("--temperature", metavar="T", type=float, default=0.0, help="0 is greedy (default: 0)")
    group.add_argument(
        "--top-k", metavar="N", type=int, default=0, help="draw from the N best tokens (default: 0, all)"
    )
    group.add_argument(
        "--top-p", metavar="P", type=float, default=1.0, help="draw from the best P of mass (default: 1)"
    )
    group.add_argument("--min-p", metavar="P", type=float, default=0.0, help="draw from P times the best (default: 0)")
    group.add_argument("--typical-p", metavar="P", type=float, default=1.0, help="locally typical mass (default: 1)")
    group.add_argument(
        "--repeat-penalty", metavar="X", type=float, default=1.0, help="divides repeated logits (default: 1)"
    )
    group.add_argument("--frequency-penalty", metavar="X", type=float, default=0.0, help="per occurrence (default: 0)")
    group.add_argument("--presence-penalty", metavar="X", type=float, default=0.0, help="per token seen (default: 0)")
    group.add_argument(
        "--mirostat", metavar="V", type=int, default=0, choices=(0, 1, 2), help="version (default: 0, off)"
    )
    group.add_argument("--grammar-file", metavar="FILE", help="GBNF grammar that the answer must follow")
    group.add_argument("--json-schema-file", metavar="FILE", help="JSON schema that the answer must follow")
    group.add_argument("--seed", metavar="N", type=int, help="makes a temperature reproducible (default: random)")
    group.add_argument(
        "--max-tokens",
        metavar="N",
        type=token_count,
        default=512,
        help="at most so many tokens; -1: to the end of the context (default: 512)",
    )


def sampling_from(args: argparse.Namespace) -> SamplingParams:
    """The sampler settings that the parsed options give; ValueError for a bad one, ModelError for a bad file."""
    return SamplingParams(
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        typical_p=args.typical_p,
        repeat_penalty=args.repeat_penalty,
        frequency_penalty=args.frequency_penalty,
        presence_penalty=args.presence_penalty,
        mirostat_mode=args.mirostat,
        grammar=read_text(args.grammar_file, "grammar") if args.grammar_file else None,
        json_schema=read_text(args.json_schema_file, "JSON schema") if args.json_schema_file else None,
        seed=args.seed,
    )


def token_count(text: str) -> int | None:
    """A number of tokens, -1 for no limit; argparse names this function in its messages."""
    number = int(text)
    if number < -1:
        raise argparse.ArgumentTypeError(f"{number} is neither a number of tokens nor -1 (to the end of the context)")
    return None if number == -1 else number


def settings_from(args: argparse.Namespace) -> Settings:
    """The settings that the parsed options give; ValueError if they contradict each other."""
    return Settings(
        verifier=args.verifier,
        draft=args.draft,
        drafter=args.drafter,
        draft_mask=args.draft_mask,
        mode=args.mode,
        profile=None if args.profile == "none" else args.profile,
        mask=args.mask,
        thresholds=args.thresholds,
        max_deviation=args.max_deviation,
        draft_tokens=args.draft_tokens,
        n_ctx=args.n_ctx,
        threads=args.threads,
        placement=placement_from(args, VERIFIER),
        draft_placement=placement_from(args, DRAFT),
        check_memory=not args.ignore_memory,
    )
