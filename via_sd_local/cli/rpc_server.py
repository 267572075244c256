"""`via-sd-local rpc-server`: lend the devices of this machine to via-sd-local on another machine."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from ..runtime.rpc_server import DEFAULT_PORT, parse_address, server_command
from .subcommands import Commands

DESCRIPTION = """\
Run llama.cpp's RPC server until it is stopped. The server has no authentication and no encryption: anyone who can reach
its port can use it, read what is sent to it, and crash it. Listen on addresses other than 127.0.0.1 only in a network
that you trust. The server handles one process at a time.
"""


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "rpc-server", help="lend the devices of this machine to another one", description=DESCRIPTION
    )
    parser.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1", help="IPv4 address to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--port", metavar="P", type=int, default=DEFAULT_PORT, help="port to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--threads", metavar="N", type=int, help="number of threads of the CPU device (default: half of the cores)"
    )
    parser.add_argument("--devices", metavar="NAME,…", help="devices to lend (default: all GPUs, else the CPU)")
    parser.add_argument("--cache", action="store_true", help="keep large tensors on disk, so that they are sent once")
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Check the arguments, warn if other machines can reach the address, and become the server."""
    address = parse_address(args.host)
    command = server_command(address, args.port, threads=args.threads, devices=args.devices, cache=args.cache)
    if not address.is_loopback:
        print(
            f"warning: anyone who can reach {address}:{args.port} can use, read and crash this server; it has no "
            "authentication and no encryption, and belongs on a trusted network",
            file=sys.stderr,
        )
    sys.stderr.flush()
    if os.name != "nt":
        os.execv(command[0], command)
    return subprocess.run(command, check=False).returncode
