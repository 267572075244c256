"""llama.cpp's RPC servers: other machines whose devices hold layers of a model.

A server answers one client process at a time. Nothing is encrypted, and whoever reaches its port may use it. A server
that is lost leaves its models unusable, but not the process: patches/README.md says how.
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

PATIENCE = 5.0  # seconds that a server may take to answer a first message
_HELLO, _CAPABILITIES = 14, 24  # RPC_CMD_HELLO, RPC_CONN_CAPS_SIZE of llama.cpp

_base = shared_library("ggml-base")
_pointer = ctypes.c_void_p
_address = declare(_base, "ggml_backend_reg_get_proc_address", [_pointer, ctypes.c_char_p], _pointer)
_count = declare(_base, "ggml_backend_reg_dev_count", [_pointer], ctypes.c_size_t)
_get = declare(_base, "ggml_backend_reg_dev_get", [_pointer, ctypes.c_size_t], _pointer)

_users: Counter[str] = Counter()  # loaded models of this process, by server


class Servers:
    """The servers of one model from before it is loaded until it is freed."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        """Reach each `host:port`; ModelError with the reason if one cannot be used."""
        self.devices: list[Device] = []
        self._losses: dict[str, int] = {}
        if endpoints and not has_rpc():
            raise ModelError("rpc_servers: this build has no RPC backend; build with CMAKE_ARGS=-DVIA_SD_RPC=ON")
        try:
            for endpoint in endpoints:
                if not _users[endpoint]:  # a server that serves this process already answers nobody else
                    greet(endpoint)
                self.devices += _add(endpoint)
                self._losses[endpoint] = _losses(endpoint)
                _users[endpoint] += 1
        except BaseException:
            self.close()
            raise

    def lost(self) -> str | None:
        """The first server that has stopped answering since the beginning, if there is one."""
        return next((server for server, before in self._losses.items() if _losses(server) != before), None)

    def check(self, name: str) -> None:
        """NativeError if a server is lost; `name` is the model's."""
        if server := self.lost():
            raise NativeError(f"the RPC server {server} does not answer any more; start it and load {name} again")

    def close(self) -> None:
        """The model is freed."""
        _users.subtract(self._losses.keys())
        self._losses.clear()


def greet(endpoint: str) -> None:
    """Say hello to a server; ModelError unless one answers in time, since llama.cpp itself would wait for ever."""
    host, _, port = endpoint.rpartition(":")
    message = struct.pack(f"<BQ{_CAPABILITIES}x", _HELLO, _CAPABILITIES)
    try:
        with socket.create_connection((host, int(port)), PATIENCE) as connection:
            connection.settimeout(PATIENCE)
            connection.sendall(message)
            with connection.makefile("rb") as stream:
                answer = stream.read(8)
    except TimeoutError:
        raise ModelError(
            f"the RPC server {endpoint} does not answer within {PATIENCE:.0f} seconds; it may be serving another "
            "process (a server serves one at a time)"
        ) from None
    except OSError as error:
        raise ModelError(f"the RPC server {endpoint} cannot be reached: {error.strerror or error}") from None
    if answer != struct.pack("<Q", 4 + _CAPABILITIES):
        raise ModelError(f"what answers at {endpoint} is no RPC server of this version of llama.cpp")


def _function(name: str, result: type, argument: type) -> ctypes._FuncPointer:
    address = _address(registry("RPC"), name.encode())
    if not address:
        raise ModelError(f"the RPC backend has no {name}: it is not the patched llama.cpp; run `make install`")
    function: ctypes._FuncPointer = ctypes.CFUNCTYPE(result, argument)(address)
    return function


def _add(endpoint: str) -> list[Device]:
    """The devices of a server."""
    server = _function("ggml_backend_rpc_add_server", _pointer, ctypes.c_char_p)(endpoint.encode())
    if not server:
        raise ModelError(f"the RPC server {endpoint} names no devices, or is of another version of llama.cpp")
    return [device_of(_get(server, index)) for index in range(_count(server))]


def _losses(endpoint: str) -> int:
    """How often connections of this process to a server were lost."""
    return int(_function("ggml_backend_rpc_losses", ctypes.c_uint32, ctypes.c_char_p)(endpoint.encode()))
