"""llama.cpp's RPC server program, which lends the devices of this machine to other machines."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path

from ..errors import ViaSdError
from ..libraries import LIBRARIES

DEFAULT_PORT = 50052  # llama.cpp's own


def server_command(
    address: ipaddress.IPv4Address,
    port: int = DEFAULT_PORT,
    *,
    threads: int | None = None,
    devices: str | None = None,
    cache: bool = False,
) -> list[str]:
    """Return the server program and its arguments.

    `threads` are those of its CPU device, `devices` are names separated by commas, and `cache` keeps large tensors on
    disk. Raises ValueError for a bad argument, and ViaSdError if this build has no server or the port is in use.
    """
    if not 0 < port < 65536:
        raise ValueError(f"port is {port}; it must be from 1 to 65535")
    if threads is not None and not 1 <= threads <= 512:
        raise ValueError(f"threads is {threads}; it must be from 1 to 512")
    program = server_program()
    _check_free(address, port)
    command = [str(program), "--host", str(address), "--port", str(port)]
    command += ["--threads", str(threads)] if threads else []
    command += ["--device", devices] if devices else []
    return [*command, "--cache"] if cache else command


def server_program() -> Path:
    """Return the program that was built with the library; raises ViaSdError if this build has none."""
    program = LIBRARIES / ("rpc-server.exe" if os.name == "nt" else "rpc-server")
    if not program.is_file():
        raise ViaSdError("this build has no RPC server; build with CMAKE_ARGS=-DVIA_SD_RPC=ON")
    return program


def parse_address(text: str) -> ipaddress.IPv4Address:
    """Parse an IPv4 address or `localhost`; the server does not resolve names."""
    try:
        return ipaddress.IPv4Address("127.0.0.1" if text == "localhost" else text)
    except ValueError:
        raise ValueError(f"host is {text!r}; it must be an IPv4 address of this machine, e.g. 192.168.1.20") from None


def _check_free(address: ipaddress.IPv4Address, port: int) -> None:
    """Raise ViaSdError if the port is in use; the server itself would exit without an error message."""
    with socket.socket() as probe:
        if os.name != "nt":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((str(address), port))
        except OSError as error:
            raise ViaSdError(f"the server cannot listen on {address}:{port}: {error.strerror}") from None
