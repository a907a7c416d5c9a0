"""A server with the part of Google's JSON API that pyarrow needs to read and write ``gs://``.

It keeps objects as files of a folder, ``bucket/key``, and runs as a process of its own: pyarrow waits for some of its
answers without letting other Python threads run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOM = 1 << 20
"""The most bytes that an object may have."""


@dataclass(frozen=True)
class GoogleStore:
    """The store's folder and port."""

    folder: Path
    port: int

    def uri(self, path: str) -> str:
        where = f"scheme=http&endpoint_override=127.0.0.1:{self.port}&retry_limit_seconds=5"
        return f"gs://anonymous@{path}?{where}"


@contextmanager
def serving_google(folder: Path) -> Iterator[GoogleStore]:
    """Serve a folder as a store that asks for no credentials."""
    command = [sys.executable, __file__, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield GoogleStore(folder, int(process.stdout.readline()))
        finally:
            process.terminate()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.uploads: dict[str, bytes] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # pyarrow hangs up as soon as it knows enough
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are sent apart, and waiting for the one's receipt takes 40 ms
    server: _Server

    def log_message(self, *_: Any) -> None:
        pass

    def _asked(self) -> tuple[str, dict[str, str]]:
        """``bucket/key`` of an object, ``bucket/`` of the list of objects or ``bucket``, and the query."""
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        bucket, *key = re.split("/o/?", parts.path.removeprefix("/upload").removeprefix("/storage/v1/b/"), maxsplit=1)
        return unquote("/".join([bucket, *key])), {name: values[0] for name, values in query.items()}

    def _answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _tell(self, facts: dict[str, Any]) -> None:
        self._answer(200, json.dumps(facts).encode(), **{"Content-Type": "application/json"})

    def _facts(self, path: str) -> dict[str, Any]:
        bucket, _, name = path.partition("/")
        facts = {"kind": "storage#object", "bucket": bucket, "name": name, "generation": "1"}
        size = (self.server.folder / path).stat().st_size
        return {**facts, "size": str(size), "updated": "2024-01-01T00:00:00.000Z"}

    def do_GET(self) -> None:
        path, query = self._asked()
        if "/" not in path:
            self._tell({"kind": "storage#bucket", "name": path})
        elif path.endswith("/"):
            self._list(path, query.get("prefix", ""), query.get("delimiter"))
        elif not (self.server.folder / path).is_file():
            self._answer(404)
        elif query.get("alt") == "media":
            self._read((self.server.folder / path).read_bytes())
        else:
            self._tell(self._facts(path))

    def _list(self, bucket: str, prefix: str, delimiter: str | None) -> None:
        files = (file for file in (self.server.folder / bucket).rglob("*") if file.is_file())
        paths = sorted(file.relative_to(self.server.folder).as_posix() for file in files)
        begun = [path for path in paths if path.startswith(bucket + prefix)]
        found = [path for path in begun if not (delimiter and delimiter in path[len(bucket + prefix) :])]
        self._tell({"kind": "storage#objects", "items": [self._facts(path) for path in found]})

    def _read(self, data: bytes) -> None:
        if not (wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))):
            self._answer(200, data)
            return
        first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
        self._answer(206, data[first : last + 1], **{"Content-Range": f"bytes {first}-{last}/{len(data)}"})

    def do_POST(self) -> None:
        bucket, query = self._asked()
        self.rfile.read(int(self.headers["content-length"]))
        self.server.uploads[bucket + query["name"]] = b""
        self._answer(200, Location=f"http://{self.headers['host']}{self.path}&upload_id=1")

    def do_PUT(self) -> None:
        bucket, query = self._asked()
        path = bucket + query["name"]
        data = self.server.uploads[path] + self.rfile.read(int(self.headers["content-length"]))
        self.server.uploads[path] = data
        if len(data) > ROOM:
            self._answer(403)
        elif self.headers["content-range"].endswith("/*"):
            self._answer(308, Range=f"bytes=0-{len(data) - 1}")
        else:
            file = self.server.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            self._tell(self._facts(path))

    def do_DELETE(self) -> None:
        path, _ = self._asked()
        (self.server.folder / path).unlink()
        self._answer(204)


if __name__ == "__main__":
    server = _Server(Path(sys.argv[1]))
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
