"""llama.cpp's RPC servers: other machines whose devices hold layers of a model.

A server serves one client process at a time. Nothing is encrypted, and anyone who can reach its port may use it. Losing
a server makes the models on it unusable, but does not end this process (patches/README.md explains how).
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections import Counter
from collections.abc import Sequence

from ..binding import declare, shared_library
from ..errors import ModelError, NativeError
from .devices import Device, device_of, has_rpc, registry

TIMEOUT = 5.0  # seconds that a server may take to answer the first message
_HELLO, _CAPABILITIES = 14, 24  # RPC_CMD_HELLO, RPC_CONN_CAPS_SIZE (ggml-rpc.cpp)

_base = shared_library("ggml-base")
_pointer = ctypes.c_void_p
_address = declare(_base, "ggml_backend_reg_get_proc_address", [_pointer, ctypes.c_char_p], _pointer)
_count = declare(_base, "ggml_backend_reg_dev_count", [_pointer], ctypes.c_size_t)
_get = declare(_base, "ggml_backend_reg_dev_get", [_pointer, ctypes.c_size_t], _pointer)

_users: Counter[str] = Counter()  # server → number of models of this process on it


class Servers:
    """The servers that hold part of one model; opened before it is loaded and closed after it is freed."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        """Connect to each `host:port`; ModelError, with the reason, if one cannot be used."""
        self.devices: list[Device] = []
        self._losses: dict[str, int] = {}
        if endpoints and not has_rpc():
            raise ModelError("rpc_servers: this build has no RPC backend; build with CMAKE_ARGS=-DVIA_SD_RPC=ON")
        try:
            for endpoint in endpoints:
                if not _users[endpoint]:  # a server that this process already uses accepts no second connection
                    greet(endpoint)
                self.devices += _add(endpoint)
                self._losses[endpoint] = _losses(endpoint)
                _users[endpoint] += 1
        except BaseException:
            self.close()
            raise

    def lost(self) -> str | None:
        """Return the first server whose connection was lost since the start, or None."""
        return next((server for server, before in self._losses.items() if _losses(server) != before), None)

    def check(self, name: str) -> None:
        """Raise NativeError if a server is lost; `name` is the model's, for the message."""
        if server := self.lost():
            raise NativeError(f"the RPC server {server} no longer answers; start it and load {name} again")

    def close(self) -> None:
        """Give up the servers; the model must have been freed."""
        _users.subtract(self._losses.keys())
        self._losses.clear()


def greet(endpoint: str) -> None:
    """Exchange llama.cpp's first message with a server; ModelError unless it answers within `TIMEOUT` seconds.

    llama.cpp itself would wait forever.
    """
    host, _, port = endpoint.rpartition(":")
    message = struct.pack(f"<BQ{_CAPABILITIES}x", _HELLO, _CAPABILITIES)
    try:
        with socket.create_connection((host, int(port)), TIMEOUT) as connection:
            connection.settimeout(TIMEOUT)
            connection.sendall(message)
            with connection.makefile("rb") as stream:
                answer = stream.read(8)
    except TimeoutError:
        raise ModelError(
            f"the RPC server {endpoint} did not answer within {TIMEOUT:.0f} seconds; it may be serving another "
            "process (a server serves one at a time)"
        ) from None
    except OSError as error:
        raise ModelError(f"the RPC server {endpoint} cannot be reached: {error.strerror or error}") from None
    if answer != struct.pack("<Q", 4 + _CAPABILITIES):
        raise ModelError(f"the program that answers at {endpoint} is not an RPC server of this version of llama.cpp")


def _function(name: str, result: type, argument: type) -> ctypes._FuncPointer:
    address = _address(registry("RPC"), name.encode())
    if not address:
        raise ModelError(f"the RPC backend has no {name}: it is not the patched llama.cpp; run `make install`")
    function: ctypes._FuncPointer = ctypes.CFUNCTYPE(result, argument)(address)
    return function


def _add(endpoint: str) -> list[Device]:
    """Register a server with ggml and return its devices."""
    server = _function("ggml_backend_rpc_add_server", _pointer, ctypes.c_char_p)(endpoint.encode())
    if not server:
        raise ModelError(f"the RPC server {endpoint} offers no devices, or is of another version of llama.cpp")
    return [device_of(_get(server, index)) for index in range(_count(server))]


def _losses(endpoint: str) -> int:
    """Return how many connections of this process to a server have been lost."""
    return int(_function("ggml_backend_rpc_losses", ctypes.c_uint32, ctypes.c_char_p)(endpoint.encode()))
