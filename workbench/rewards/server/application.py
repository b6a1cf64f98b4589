"""The reward service as a web application: POST /score, GET /health, /model and /metrics."""

import hmac
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import ValidationError

from workbench.errors import ConfigError
from workbench.rewards.server.batching import Batcher, QueueFull
from workbench.rewards.server.metrics import Metrics
from workbench.rewards.server.served import Served
from workbench.rewards.wire.messages import MAX_BODY_MIB, About, Health, ScoreIn, ScoreOut, plain
from workbench.rewards.wire.shared_memory import Block, Lent

CLIENT_GONE = 499
SOON = {"Retry-After": "1"}  # seconds


class Desk:
    """What the routes do. Raises HTTPException with plain words."""

    def __init__(self, served: Served, batcher: Batcher, metrics: Metrics, block: Block | None, token: str | None) -> None:
        self.served, self.batcher, self.metrics, self.block = served, batcher, metrics, block
        self._token = None if token is None else f"Bearer {token}".encode()

    def admit(self, request: Request) -> None:
        """401 without the token."""
        given = request.headers.get("authorization", "").encode()
        if self._token is not None and not hmac.compare_digest(given, self._token):  # in a time that tells nothing of the token
            raise HTTPException(401, "the token is missing or wrong: send the header 'Authorization: Bearer TOKEN'")

    def check_ready(self) -> None:
        """503 while the reward is being loaded."""
        if not self.batcher.ready:
            raise HTTPException(503, f"{self.served.name} is still being loaded")

    async def score(self, request: Request) -> ScoreOut:
        """The rewards of what is asked."""
        asked = _read(await _body(request))
        self.check_ready()
        try:
            via, items = await run_in_threadpool(self._items, asked)
        except (ConfigError, ValueError) as error:
            raise HTTPException(422, str(error)) from error
        try:
            rewards = await self.batcher.submit(items, request.is_disconnected) if items else []
        except QueueFull as error:
            raise HTTPException(503, str(error), SOON) from error
        except Exception as error:  # the reward's own: told to whoever asked
            self.metrics.errors.inc()
            raise HTTPException(500, f"the reward failed: {type(error).__name__}: {error}") from error
        if rewards is None:
            raise HTTPException(CLIENT_GONE, "nobody waits for this any more")
        self.metrics.rows.labels(via).inc(len(rewards))
        return ScoreOut(rewards=rewards, model=self.served.name)

    def _items(self, asked: ScoreIn) -> tuple[str, Sequence[Any]]:
        """How the rows came, and what the reward scores."""
        if asked.rows is not None:
            return "rows", self.served.of_rows([row.row() for row in asked.rows])
        if asked.ids is not None:
            return "ids", self.served.of_ids(asked.ids)
        assert asked.shared is not None
        if self.block is None:
            raise ConfigError("shared", "this server has no shared memory", "start it with --shared-mem NAME, or send rows")
        ids = self.block.read(Lent(asked.shared.block, asked.shared.slot, asked.shared.lengths))
        if ids is None:
            raise HTTPException(409, "the ids are in a block of shared memory that is gone: attach to the new one and send them again")
        return "shared", self.served.of_ids(ids)


def application(desk: Desk) -> FastAPI:
    """The web application."""
    app = FastAPI(title="workbench reward service", version=version("rl-workbench"), docs_url=None, redoc_url=None)
    metrics = desk.metrics

    @app.post("/score")
    async def score(request: Request) -> ScoreOut:
        status = 500
        try:
            with metrics.seconds.time():
                desk.admit(request)
                answer = await desk.score(request)
            status = 200
            return answer
        except HTTPException as error:
            status = error.status_code
            raise
        finally:
            metrics.requests.labels(str(status)).inc()

    @app.get("/health")
    async def health() -> Health:
        return Health(model=desk.served.name, ready=desk.batcher.ready, version=app.version)

    @app.get("/model")
    async def model(request: Request) -> About:
        desk.admit(request)
        desk.check_ready()
        name = None if desk.block is None else desk.block.name
        return About(model=desk.served.name, tokenizer=desk.served.tokenizer, shared_mem_name=name)

    @app.get("/metrics")
    async def figures(request: Request) -> Response:
        desk.admit(request)
        return Response(metrics.page(desk.batcher), media_type=CONTENT_TYPE_LATEST)

    return app


async def _body(request: Request) -> bytes:
    """The request's body. 413 as soon as it is too long."""
    limit, parts, size = MAX_BODY_MIB * 2**20, [], 0
    if request.headers.get("content-length", "0").isdigit():
        size = int(request.headers.get("content-length", "0"))
    if size <= limit:
        size = 0
        async for part in request.stream():
            size += len(part)
            parts.append(part)
            if size > limit:
                break
    if size > limit:
        raise HTTPException(413, f"a request has at most {MAX_BODY_MIB} MiB: send fewer rows at a time")
    return b"".join(parts)


def _read(body: bytes) -> ScoreIn:
    try:
        return ScoreIn.model_validate_json(body)
    except ValidationError as error:
        raise HTTPException(422, plain(error)) from error
