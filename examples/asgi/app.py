"""The smallest gateway: ten lines of ASGI behind the limiter. Run it with ``uvicorn app:app``."""

from stream import kafka_sink
from tallygate import RateLimitMiddleware, build_limiter


async def hello(_scope, _receive, send):
    """Answer every request."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello\n"})


app = RateLimitMiddleware(hello, lambda: build_limiter(sink=kafka_sink))
