"""A Flask application behind the limiter, as a prefork server runs it. It records to a file.

``TALLYGATE_TEST_GIVES=limiter`` builds the limiter as the module is read: in the parent, if the server loads the
application before it forks.
"""

from __future__ import annotations

import itertools
import os

from flask import Flask, Response

from enforcer import RateLimitWSGIMiddleware, build_limiter
from enforcer.cap.guard import CapGuard
from enforcer.limiting.limiter import Limiter
from tests.servers.file_sink import FileSink


def _build() -> Limiter:
    return build_limiter(sink=FileSink)


site = Flask("served")


@site.get("/")
def hello() -> str:
    """Who has answered."""
    return str(os.getpid())


@site.get("/stream")
def stream() -> Response:
    """An answer without an end."""
    return Response(itertools.repeat(b"." * 65_536))


_given = _build() if os.environ.get("TALLYGATE_TEST_GIVES") == "limiter" else _build
application = RateLimitWSGIMiddleware(site.wsgi_app, _given, cap=CapGuard())
