"""An object store with the protocol of S3 (moto), in a process of its own.

    python -m tests.pipeline.object_store DESCRIPTOR

serves on a socket that is bound and listens already. Keys other than ours are refused. The prefix
`race/` is for two drivers that put commit 1 of a table: both are held until both are there.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Barrier, Lock
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from pyarrow.fs import FileSelector, FileSystem

BUCKET = "bucket"
KEY = "test"
_START_S = 900.0
_MEET_S = 900.0


class ObjectStore:
    """The store of a test session, started when the first test wants it."""

    def __init__(self) -> None:
        """Take a free port, so that it is known before anything runs."""
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Serve, with an empty bucket; once."""
        if self._process is None:
            descriptor = self._socket.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(descriptor)], pass_fds=[descriptor]
            )
            with suppress(HTTPError):  # it knows no stranger, but it answers
                urlopen(self.endpoint, timeout=_START_S)
            self.system(allow_bucket_creation=True).create_dir(BUCKET)

    def system(self, **options: bool) -> FileSystem:
        """A stranger's view of it."""
        query = "&".join(f"{name}=true" for name in options)
        return FileSystem.from_uri(f"s3://{BUCKET}?{query}")[0]

    def keys(self, address: str) -> list[str]:
        """The objects below an address."""
        below = FileSelector(address.removeprefix("s3://"), allow_not_found=True, recursive=True)
        return [one.path for one in self.system().get_file_info(below) if one.is_file]

    def remove(self, address: str) -> None:
        """Remove an object."""
        self.system().delete_file(address.removeprefix("s3://"))

    def close(self) -> None:
        """End it."""
        self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()


Start = Callable[..., Any]
Application = Callable[[dict[str, Any], Start], Iterable[bytes]]


def _guarded(application: Application) -> Application:
    """moto looks whether an object is there and puts it then: here that is one step."""
    meeting = Barrier(2, timeout=_MEET_S)
    putting = Lock()

    def act(request: dict[str, Any], start: Start) -> Iterable[bytes]:
        if f"Credential={KEY}/" not in request.get("HTTP_AUTHORIZATION", ""):
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>InvalidAccessKeyId</Code></Error>"]
        path = request["PATH_INFO"]
        if request["REQUEST_METHOD"] != "PUT":
            return application(request, start)
        if path.startswith(f"/{BUCKET}/race/") and path.endswith("/00000000000000000001.json"):
            meeting.wait()
        with putting:
            return application(request, start)

    return act


def serve(descriptor: int) -> None:
    """Until it is killed."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    application = _guarded(DomainDispatcherApplication(create_backend_app))
    make_server("127.0.0.1", 0, application, threaded=True, fd=descriptor).serve_forever()


if __name__ == "__main__":
    os.environ.pop("AWS_ENDPOINT_URL", None)
    serve(int(sys.argv[1]))
