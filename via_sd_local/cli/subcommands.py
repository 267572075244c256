"""Parsers of subcommands and of their actions, such as `models list`."""

from __future__ import annotations

import argparse
from typing import TypeAlias

from .parser import Parser

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_actions(commands: Commands, name: str, help: str) -> Commands:
    """Add a subcommand that consists of actions; return the object to which its actions are added."""
    return commands.add_parser(name, help=help).add_subparsers(required=True, metavar="ACTION")
