"""A small Hugging Face hub on this machine, over HTTP: files with revisions, byte ranges, errors and stalls."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40


class Hub:
    """One repository, `owner/toys`, with `files`; `ranges` are the first bytes asked for, in order."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}  # entity tags that are not the SHA-256
        self.status: tuple[int, str] | None = None  # answer everything so, with this X-Error-Code
        self.stall_after: int | None = None  # bytes of an answer after which no more come
        self.ranges: list[int] = []
        self.over = threading.Event()
        self.address = ""


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_HEAD(self) -> None:
        self._answer(with_content=False)

    def do_GET(self) -> None:
        self._answer(with_content=True)

    def _answer(self, *, with_content: bool) -> None:
        path, hub = unquote(urlsplit(self.path).path), self.hub
        if path == "/":
            self._send(200, {}, b"")
        elif hub.status is not None:
            self._send(hub.status[0], {"X-Error-Code": hub.status[1]}, b"")
        elif path.startswith("/api/models/owner/toys/tree/main"):
            files = [{"type": "file", "path": name, "size": len(c), "oid": "0"} for name, c in hub.files.items()]
            self._send(200, {"Content-Type": "application/json"}, json.dumps(files).encode())
        else:
            name = path.removeprefix("/owner/toys/resolve/main/")
            if name not in hub.files:
                self._send(404, {"X-Error-Code": "EntryNotFound"}, b"")
            else:
                self._send_file(name, with_content)

    def _send_file(self, name: str, with_content: bool) -> None:
        content = self.hub.files[name]
        tag = self.hub.tags.get(name, hashlib.sha256(content).hexdigest())
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"', "X-Linked-Etag": f'"{tag}"'}
        headers["X-Linked-Size"] = str(len(content))
        if not with_content:
            self._send(200, headers | {"Content-Length": str(len(content))}, b"")
            return
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        self.hub.ranges.append(start)
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        headers["Content-Length"] = str(len(content) - start)
        stall = self.hub.stall_after
        self._send(206 if start else 200, headers, content[start:] if stall is None else content[start : start + stall])
        if stall is not None:
            self.hub.over.wait(60)

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(content)
        except OSError:  # the client has been killed
            self.close_connection = True

    def log_message(self, *_args: object) -> None:
        pass


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        hub.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
