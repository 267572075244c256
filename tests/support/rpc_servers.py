"""For the tests of RPC: servers of the same build on the loopback address, each in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from via_sd_local.errors import ModelError
from via_sd_local.runtime import rpc
from via_sd_local.runtime.rpc_server import server_program


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One server; `kill` ends it as a power cut would, `start` brings it back on the same port."""

    def __init__(self) -> None:
        self.port = free_port()
        self.endpoint = f"127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        command = [str(server_program()), "--host", "127.0.0.1", "--port", str(self.port), "--threads", "1"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self.endpoint)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def wait_for(endpoint: str) -> None:
    """Until a server answers, at most 10 seconds."""
    for _ in range(200):
        try:
            return rpc.greet(endpoint)
        except ModelError:
            time.sleep(0.05)
    raise AssertionError(f"no server at {endpoint}")


@contextmanager
def running(n: int) -> Iterator[list[Server]]:
    servers: list[Server] = []
    try:
        while len(servers) < n:
            servers.append(Server())
        yield servers
    finally:
        for server in servers:
            server.kill()


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A listener that is no RPC server, `answer` on its first connection; yields its endpoint."""
    import threading

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join(10)
