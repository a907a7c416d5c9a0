"""A local HTTP server with configurable failures."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class FileServer(ThreadingHTTPServer):
    """Serves ``files`` by name and records the requests.

    Attributes:
        files: name to content.
        requests: name and Range header of every request.
        close_after: the offset in a file at which the connection is closed.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.close_after: int | None = None
        self.supports_ranges = True
        self.sends_length = True
        self.sends_size_in_416 = True
        self.address = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        name, byte_range = self.path.lstrip("/"), self.headers.get("Range")
        self.server.requests.append((name, byte_range))
        if name not in self.server.files:
            self.send_error(404)
            return
        content, start = self.server.files[name], 0
        if byte_range and self.server.supports_ranges:
            start = int(byte_range.removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            self.send_response(416)
            if self.server.sends_size_in_416:
                self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if self.server.sends_length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : self.server.close_after])

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve_files() -> Iterator[FileServer]:
    """Run a server in a thread."""
    with FileServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
