"""A Flask application behind the limiter, for a server that forks its workers: each becomes a copy of its own."""

from functools import partial

from flask import Flask

from stream import kafka_sink
from tallygate import RateLimitWSGIMiddleware, build_limiter

site = Flask(__name__)


@site.get("/items/<item>")
def read_item(item: str) -> dict[str, str]:
    """Answer what the limiter lets through."""
    return {"item": item}


application = RateLimitWSGIMiddleware(site.wsgi_app, partial(build_limiter, sink=kafka_sink))
