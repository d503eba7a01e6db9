"""The smallest upstream: answers every request. Run it with ``python upstream.py 9000``."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hello(BaseHTTPRequestHandler):
    """Says hello, and keeps the connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """Answer."""
        self.send_response(200)
        self.send_header("content-length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    do_POST = do_GET  # noqa: N815  (the server's name for it)

    def log_message(self, *_):
        """Say nothing."""


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Hello).serve_forever()
