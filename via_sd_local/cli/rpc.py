"""`via-sd-local rpc-server`: lend this machine's devices to a via-sd-local on another one."""

from __future__ import annotations

import argparse
import ipaddress
import os
import socket
import subprocess
import sys
from pathlib import Path

from ..errors import ViaSdError

PORT = 50052


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    text = (
        "Run llama.cpp's RPC server until it is stopped. It has no passwords and no encryption: whoever reaches its "
        "port can use it, read what is sent to it, and crash it. Bind it to other addresses than 127.0.0.1 only on a "
        "network that you trust. It serves one process at a time."
    )
    parser = commands.add_parser("rpc-server", help="lend this machine's devices to another one", description=text)
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="IPv4 address (default: 127.0.0.1)")
    parser.add_argument("--port", metavar="P", type=int, default=PORT, help=f"(default: {PORT})")
    parser.add_argument("--threads", metavar="N", type=int, help="of its CPU device (default: half of the cores)")
    parser.add_argument("--devices", metavar="NAME,…", help="devices to lend (default: all GPUs, else the CPU)")
    parser.add_argument("--cache", action="store_true", help="keep large tensors on disk, to be sent only once")
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Check the address, warn if others can reach it, and become the server."""
    address = parse_address(args.host)
    command = server_command(args, address)
    if not address.is_loopback:
        print(
            f"warning: whoever reaches {address}:{args.port} can use, read and crash this server; it has no passwords "
            "and no encryption, and belongs on a trusted network",
            file=sys.stderr,
        )
    sys.stderr.flush()
    if os.name != "nt":
        os.execv(command[0], command)
    return subprocess.run(command, check=False).returncode


def server_command(args: argparse.Namespace, address: ipaddress.IPv4Address) -> list[str]:
    """The program and its arguments; ValueError for bad ones, ViaSdError where there is no program or no free port."""
    if not 0 < args.port < 65536:
        raise ValueError(f"port is {args.port}; it must be from 1 to 65535")
    if args.threads is not None and not 1 <= args.threads <= 512:
        raise ValueError(f"threads is {args.threads}; it must be from 1 to 512")
    program = server_program()
    with socket.socket() as probe:  # the server itself would end without an error
        if os.name != "nt":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((str(address), args.port))
        except OSError as error:
            raise ViaSdError(f"the server cannot listen on {address}:{args.port}: {error.strerror}") from None
    command = [str(program), "--host", str(address), "--port", str(args.port)]
    command += ["--threads", str(args.threads)] if args.threads else []
    command += ["--device", args.devices] if args.devices else []
    return [*command, "--cache"] if args.cache else command


def server_program() -> Path:
    """The program that was built along with the library; ViaSdError if it was not."""
    from ..binding import LIBRARIES

    program = LIBRARIES / ("rpc-server.exe" if os.name == "nt" else "rpc-server")
    if not program.is_file():
        raise ViaSdError("this build has no RPC server; build with CMAKE_ARGS=-DVIA_SD_RPC=ON")
    return program


def parse_address(text: str) -> ipaddress.IPv4Address:
    """An IPv4 address (the server resolves no names)."""
    try:
        return ipaddress.IPv4Address("127.0.0.1" if text == "localhost" else text)
    except ValueError:
        raise ValueError(f"host is {text!r}; it is an IPv4 address of this machine, e.g. 192.168.1.20") from None
