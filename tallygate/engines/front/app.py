"""The ASGI application: HTTP in, statements on threads, HTTP out.

Reads and writes have threads of their own, so that a page never waits behind inserts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from tallygate.engines.front.body import pieces
from tallygate.engines.front.browsers import refuse_web_pages
from tallygate.engines.front.compression import BodyEncoder, choose_encoding, decode_body
from tallygate.engines.front.errors import Code, FrontError, refusal
from tallygate.engines.front.forms import is_form, read_form
from tallygate.engines.front.lanes import Lane
from tallygate.engines.front.reply import Reply, content_type, encode_whole
from tallygate.engines.front.request import Url, build_statement, read_url
from tallygate.engines.front.session import Engine, Run
from tallygate.engines.front.sql import HEAD_BYTES
from tallygate.engines.front.users import User, UserBook

_log = logging.getLogger("tallygate.clickhouse")
_Result = TypeVar("_Result")

_PIECE_BYTES = 1 << 20
_MAX_BUFFERED_BYTES = 1 << 30
_KILL_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may happen at once.

    Attributes:
        readers: reading statements running at a time.
        writers: writing ones.
        queue_s: how long one waits for its turn before it is refused with code 202.
        body_bytes: the largest request body, before and after decompression.
        statement_bytes: the longest statement, without an INSERT's rows; reading a mebibyte can take seconds.
    """

    readers: int = 8
    writers: int = 4
    queue_s: float = 30.0
    body_bytes: int = 512 << 20
    statement_bytes: int = 1 << 20


class _ClientGone(Exception):
    """The client closed the connection; nobody is left to answer."""


class Front:
    """One engine behind ClickHouse's HTTP interface."""

    def __init__(
        self, open_engine: Callable[[], Engine], users: UserBook, limits: Limits, *, names: Iterable[str] = ()
    ) -> None:
        """Open nothing yet.

        Args:
            open_engine: opens the engine, on a thread, when the server starts.
            users: who may ask.
            limits: how much at once.
            names: what clients may call this server besides ``localhost`` and its address.
        """
        self._open_engine = open_engine
        self._users = users
        self._limits = limits
        self._engine: Engine | None = None
        self._readers = Lane("reader", limits.readers, limits.queue_s)
        self._writers = Lane("writer", limits.writers, limits.queue_s)
        self._control = ThreadPoolExecutor(1, "control")
        self._names = frozenset(names)
        # Long statements are read behind each other, and beside the short ones.
        self._short, self._long = ThreadPoolExecutor(1, "judge"), ThreadPoolExecutor(1, "judge-long")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry: lifespan and http."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(Request(scope, receive), Reply(send))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            self._engine = await asyncio.to_thread(self._open_engine)
        except (RuntimeError, OSError) as error:
            await send({"type": "lifespan.startup.failed", "message": f"the engine did not open: {error}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._readers.close()
        await self._writers.close()
        await asyncio.to_thread(self._short.shutdown)
        await asyncio.to_thread(self._long.shutdown)
        await asyncio.to_thread(self._engine.close)
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, request: Request, reply: Reply) -> None:
        try:
            await self._route(request, reply)
        except FrontError as error:
            _log.info("refused: %s", error.text[:500])
            await reply.fail(error)
        except (_ClientGone, ClientDisconnect):
            _log.info("a client closed its connection before it had its answer")
        except Exception as error:  # noqa: BLE001  a defect of ours must reach the client as an error that it understands
            _log.exception("a request failed")
            await reply.fail(refusal(Code.UNKNOWN_EXCEPTION, f"The front failed: {error!r}."))

    async def _route(self, request: Request, reply: Reply) -> None:
        path, reads = request.url.path, request.method in {"GET", "HEAD"}
        if reads and (path == "/ping" or (path == "/" and not request.url.query)):
            await reply.whole(b"Ok.\n", {"Content-Type": "text/html; charset=UTF-8"})
            return
        if path != "/" or not (reads or request.method == "POST"):
            raise refusal(Code.BAD_ARGUMENTS, f"There is no {request.method} {path} here.")
        refuse_web_pages(request.headers, self._names)
        url = read_url(request.scope["query_string"])
        # Before a byte of the body is taken: a form's fields name no user.
        user = self._users.authenticate(request.headers, url.values)
        url, body = await self._read(request, url)
        await self._execute(request, reply, url, body, user)

    async def _read(self, request: Request, url: Url) -> tuple[Url, list[bytes]]:
        limit_bytes = self._limits.body_bytes
        if is_form(request):
            return read_url(request.scope["query_string"], await read_form(request, limit_bytes)), []
        chunks = [piece async for piece in pieces(request, limit_bytes)]
        encoding = request.headers.get("content-encoding", "").strip().lower()
        if encoding and chunks:
            chunks = await self._writers.call(lambda: decode_body(chunks, encoding, limit_bytes))
        return url, chunks

    async def _judge(self, url: Url, body: list[bytes], judge: Callable[[], Run]) -> Run:
        """Read the statement on a thread: a long one must not hold up every other request."""
        size = len(url.query) + sum(map(len, body))
        pool = self._short if size <= HEAD_BYTES else self._long
        return await asyncio.get_running_loop().run_in_executor(pool, judge)

    async def _execute(self, request: Request, reply: Reply, url: Url, body: list[bytes], user: User) -> None:
        headers = request.headers
        database = url.values.get("database") or headers.get("x-clickhouse-database") or "default"
        default_format = url.values.get("default_format") or headers.get("x-clickhouse-format") or "TabSeparated"
        readonly = 1 if user.readonly else 0 if request.method == "POST" else 2
        engine, limit_bytes = self._open(), self._limits.statement_bytes

        def judge() -> Run:
            statement = build_statement(url, body, database=database, limit_bytes=limit_bytes)
            return Run(engine, statement, readonly=readonly, default_format=default_format)

        run = await self._judge(url, body, judge)
        lane = self._readers if run.kind == "READ_ONLY" else self._writers
        encoding = choose_encoding(
            headers.get("accept-encoding", ""),
            wanted=url.flag("enable_http_compression") and run.format_name is not None,
        )
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            async with lane.turn():
                try:
                    await self._perform(_Exchange(run, lane, gone, encoding, url), reply)
                finally:
                    await lane.call(run.close)
        finally:
            gone.cancel()

    async def _perform(self, exchange: _Exchange, reply: Reply) -> None:
        run, encoding = exchange.run, exchange.encoding
        to_the_end = exchange.url.flag("wait_end_of_query")
        enough_bytes = _MAX_BUFFERED_BYTES if to_the_end else _PIECE_BYTES
        rows, more = await self._watched(exchange, lambda: run.start(enough_bytes))
        if not more:
            body, used = await exchange.lane.call(lambda: encode_whole(rows, encoding))
            await reply.whole(body, self._headers(exchange, used))
            return
        if to_the_end:
            limit = f"more than {_MAX_BUFFERED_BYTES} bytes; ask without wait_end_of_query to have it streamed"
            raise refusal(Code.TOO_MANY_ROWS_OR_BYTES, f"The result has {limit}.")
        encoder = BodyEncoder(encoding)
        await reply.begin(self._headers(exchange, encoding), encoder)
        while True:
            last, now = not more, rows
            body = await exchange.lane.call(partial(encoder.piece, now, last=last))
            await reply.piece(body, last=last)
            if last:
                return
            rows, more = await self._watched(exchange, lambda: run.fetch(_PIECE_BYTES))

    async def _watched(self, exchange: _Exchange, work: Callable[[], _Result]) -> _Result:
        """Do the work on a thread; when the client goes meanwhile, end the query rather than finish it for nobody."""
        task = asyncio.ensure_future(exchange.lane.call(work))
        try:
            watched: set[asyncio.Future[Any]] = {task, exchange.gone} if exchange.run.cancellable else {task}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._abandon(exchange.run, task)
            raise
        if not task.done():
            await self._abandon(exchange.run, task)
            raise _ClientGone
        return task.result()

    async def _abandon(self, run: Run, task: asyncio.Future[_Result]) -> None:
        """Wait until the thread has left the handle, which must not be closed under it."""
        loop = asyncio.get_running_loop()
        while not task.done():
            if run.cancellable:
                await loop.run_in_executor(self._control, self._open().kill, run.marker)
            await asyncio.wait({task}, timeout=_KILL_AGAIN_S)
        with contextlib.suppress(FrontError):  # nobody is left to tell
            task.result()

    def _headers(self, exchange: _Exchange, encoding: str | None) -> dict[str, str]:
        headers = {
            "X-ClickHouse-Query-Id": exchange.url.values.get("query_id") or str(uuid.uuid4()),
            "X-ClickHouse-Timezone": self._open().timezone,
            "X-ClickHouse-Summary": exchange.run.summary(),
        }
        name = exchange.run.format_name
        if name is not None:
            headers["X-ClickHouse-Format"] = name
        headers["Content-Type"] = content_type(name or "TabSeparated")
        if encoding is not None:
            headers["Content-Encoding"] = encoding
        return headers

    def _open(self) -> Engine:
        if self._engine is None:
            raise refusal(Code.UNKNOWN_EXCEPTION, "The engine is not open yet.")
        return self._engine


@dataclass(frozen=True, slots=True)
class _Exchange:
    """What belongs to one statement while it runs."""

    run: Run
    lane: Lane
    gone: asyncio.Future[None]
    encoding: str | None
    url: Url


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
