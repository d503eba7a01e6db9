"""A FastAPI application behind the limiter, for a server with several workers: each is a copy of its own."""

from fastapi import FastAPI

from stream import kafka_sink
from tallygate import RateLimitMiddleware, build_limiter

api = FastAPI()


@api.get("/items/{item}")
async def read_item(item: str) -> dict[str, str]:
    """Answer what the limiter lets through."""
    return {"item": item}


app = RateLimitMiddleware(api, lambda: build_limiter(sink=kafka_sink))
