"""A server with the part of the S3 protocol that pyarrow needs to read and write ``s3://``."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_XML = '<?xml version="1.0" encoding="UTF-8"?>'
_FILE = "<Contents><Key>{}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified><Size>{}</Size></Contents>"


class Store(ThreadingHTTPServer):
    """Objects by ``bucket/key``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}

    def uri(self, path: str) -> str:
        return f"s3://{path}?endpoint_override=127.0.0.1:{self.server_port}&scheme=http&region=us-east-1"


@contextmanager
def serving() -> Iterator[Store]:
    """Serve a store, with credentials for it in the environment."""
    with Store() as store:
        thread = threading.Thread(target=store.serve_forever, args=(0.01,))
        thread.start()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("AWS_ACCESS_KEY_ID", "key")
                patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
                yield store
        finally:
            store.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def log_message(self, *_: Any) -> None:
        pass

    def _asked(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        return unquote(parts.path).lstrip("/"), {name: values[0] for name, values in query.items()}

    def _answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), "ETag": '"x"', **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _body(self) -> bytes:
        chunked = "chunked" in self.headers.get("transfer-encoding", "")
        body = self._chunks() if chunked else self.rfile.read(int(self.headers.get("content-length", 0)))
        if "aws-chunked" not in self.headers.get("content-encoding", ""):
            return body
        data = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            length = int(size.split(b";")[0], 16)
            if length == 0:
                break
            data, body = data + body[:length], body[length + 2 :]
        return data

    def _chunks(self) -> bytes:
        body = b""
        while length := int(self.rfile.readline(), 16):
            body += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path, query = self._asked()
        if "list-type" in query:
            self._list(path.rstrip("/"), query.get("prefix", ""), query.get("delimiter"))
        elif path not in self.server.objects:
            self._answer(404)
        else:
            data, code, headers = self.server.objects[path], 200, {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
            if wanted := re.match(r"bytes=(\d+)-(\d*)", self.headers.get("range", "")):
                first, last = int(wanted[1]), int(wanted[2] or len(data) - 1)
                headers["Content-Range"] = f"bytes {first}-{min(last, len(data) - 1)}/{len(data)}"
                data, code = data[first : last + 1], 206
            self._answer(code, data, **headers)

    def _list(self, bucket: str, prefix: str, delimiter: str | None) -> None:
        start = f"{bucket}/{prefix}"
        files, folders = [], set()
        for path, data in sorted(self.server.objects.items()):
            if not path.startswith(start):
                continue
            if delimiter and delimiter in path[len(start) :]:
                folders.add(prefix + path[len(start) :].split(delimiter)[0] + delimiter)
            else:
                files.append(_FILE.format(path[len(bucket) + 1 :], len(data)))
        common = (f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in sorted(folders))
        body, count = "".join([*files, *common]), len(files)
        self._answer(
            200,
            f"{_XML}<ListBucketResult><KeyCount>{count}</KeyCount><IsTruncated>false</IsTruncated>{body}</ListBucketResult>".encode(),
        )

    def do_PUT(self) -> None:
        path, query = self._asked()
        data = self._body()
        if "uploadId" in query:
            self.server.uploads[path] = self.server.uploads.get(path, b"") + data
        else:
            self.server.objects[path] = data
        self._answer(200)

    def do_POST(self) -> None:
        path, query = self._asked()
        self._body()
        name = "InitiateMultipartUploadResult" if "uploads" in query else "CompleteMultipartUploadResult"
        if "uploads" not in query:
            self.server.objects[path] = self.server.uploads.pop(path)
        self._answer(200, f"{_XML}<{name}><UploadId>1</UploadId><ETag>x</ETag></{name}>".encode())

    def do_DELETE(self) -> None:
        path, _ = self._asked()
        self.server.objects.pop(path, None)
        self._answer(204)
