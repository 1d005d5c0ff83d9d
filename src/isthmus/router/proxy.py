"""A client's request to the pool that answers it: choose, try, try elsewhere, pass the answer on as it comes.

app.py mounts `forward` on the POST paths. Until the first byte of an answer's body has gone to the client, a
try that found no answer, or a 502, 503 or 504, may be followed by another pool of the choice, within the
number of attempts and the retry budget; after that never (PW-18, R46). An answer that breaks off ends the
client's connection abnormally, an event stream's after an error object and without `[DONE]`. The body is
passed on unchanged in both directions. A client that goes cancels the handler, and with it the try (R45).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final, NamedTuple

import msgspec

from isthmus.api.pools import InvalidField
from isthmus.clock import Clock
from isthmus.router import headers
from isthmus.router.accesslog import AccessLog, Line
from isthmus.router.metrics import UNKNOWN, Metrics
from isthmus.router.plan import facts as facts_of
from isthmus.router.plan.budget import RetryBudget
from isthmus.router.plan.model import Choice, Outcome, Ranked, RequestFacts
from isthmus.router.plan.selector import Selector, Try
from isthmus.router.upstream import Failed, Reply, Upstream
from isthmus.web.routes import EVENT_STREAM, Answer, Pairs, Request, json_body, openai_error

RETRIED: Final = frozenset({502, 503, 504})
SMALL_BYTES: Final = 256 * 1024
"""An answer of a known length up to this is read to its end before it begins: until then it may be
retried."""


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`attempts` in all; `budget_s` for all of a request, its answer included; `authorization`: whether
    clients' credentials go on to pools."""

    attempts: int = 3
    total_s: float = 1800.0
    authorization: bool = False


class _Attempt(NamedTuple):
    """A try that has an answer's head."""

    reply: Reply
    at: Try
    ranked: Ranked


Recorder = Callable[[str, float, float, bool], None]
"""Told of each request at a pool when it has ended: pool ID, seconds to the first byte, seconds in all, and
whether all was well."""


class _Job:
    """One request on its way: what the access log and the metrics want to know of it."""

    __slots__ = ("attempts", "facts", "first_s", "identity", "last_pool", "request", "sent", "trace")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.identity = headers.request_id(request)
        self.trace = headers.traceparent(request)
        self.facts = RequestFacts("")
        self.attempts: list[str] = []
        self.last_pool = ""
        self.first_s: float | None = None
        self.sent = 0


class Proxy:
    """See the module."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        settings: ProxySettings,
        selector: Selector,
        upstream: Upstream,
        budget: RetryBudget,
        metrics: Metrics,
        clock: Clock,
        log: AccessLog,
        record: Recorder = lambda pool, first, whole, ok: None,
    ) -> None:
        self._settings = settings
        self._selector = selector
        self._upstream = upstream
        self._budget = budget
        self._metrics = metrics
        self._clock = clock
        self._log = log
        self._record = record
        self.running = 0

    async def forward(self, request: Request) -> Answer:
        """The handler of every path that is passed through."""
        job = _Job(request)
        self.running += 1
        handed = False
        try:
            answer = await self._answer(job)
            handed = isinstance(answer.body, AsyncGenerator)
            return answer
        except asyncio.CancelledError:
            self._metrics.client_aborts.inc()
            self._done(job, 499, "", note="client gone")
            raise
        finally:
            if not handed:
                self.running -= 1

    async def _answer(self, job: _Job) -> Answer:
        request = job.request
        if request.header(headers.HOP):
            return self._refused(job, 508, "this request has been through a global router already")
        if request.header("content-encoding") not in ("", "identity"):
            return self._refused(
                job, 415, "a compressed body cannot be routed: send it without Content-Encoding"
            )
        try:
            job.facts = facts_of.read(request.body)
        except InvalidField as problem:
            return self._refused(job, 400, str(problem), param=problem.field or None)
        now = self._clock.monotonic()
        self._budget.request(now)
        choice = self._selector.choose(job.facts, now)
        if (refusal := choice.refusal) is not None:
            more = {"code": "model_not_found"} if refusal.status == 404 else {"reasons": refusal.reasons}
            return self._refused(job, refusal.status, refusal.message, **more)
        return await self._try_all(job, choice)

    async def _try_all(self, job: _Job, choice: Choice) -> Answer:
        """Try the pools of the choice in their order; the last one's failure is the answer where all fail."""
        deadline_s = job.request.arrived_s + self._settings.total_s
        last: Answer | None = None
        outcome = Outcome.OK
        tried = 0
        for ranked in choice.order:
            if tried >= self._settings.attempts:
                break
            if tried and not self._budget.take(self._clock.monotonic()):
                self._metrics.refused_retries.inc()
                break
            at = self._selector.began(ranked.pool_id, self._clock.monotonic())
            if at is None:
                continue
            if tried:
                self._metrics.retries.labels(outcome.value).inc()
            tried += 1
            job.attempts.append(self._name(ranked.pool_id))
            last, outcome = await self._try(job, _Step(at, ranked, deadline_s))
            if outcome is Outcome.OK:
                return last
        if last is None:
            return self._refused(job, 503, "every pool that has the model is busy or resting")
        self._finish(job, last.status, job.last_pool)
        return last

    async def _try(self, job: _Job, step: _Step) -> tuple[Answer, Outcome]:
        """One try: the answer that the client gets if there is no other, and how it ended."""
        job.last_pool = step.at.pool_id
        self._metrics.in_flight.labels(self._name(step.at.pool_id)).inc()
        outcome, owned = Outcome.CANCELLED, True
        try:
            reply = await self._send(job, step)
            try:
                answer, outcome, owned = await self._take(job, _Attempt(reply, step.at, step.ranked))
            finally:
                if owned:
                    reply.close()
            return answer, outcome
        except Failed as problem:
            outcome = problem.outcome
            status = 504 if outcome is Outcome.TIMEOUT else 502
            return self._error(job, status, str(problem), pool_id=step.at.pool_id), outcome
        finally:
            if owned:
                self._ended(step.at, outcome)

    async def _send(self, job: _Job, step: _Step) -> Reply:
        request = job.request
        return await self._upstream.send(
            step.at.url.rstrip("/"),
            request.path,
            headers=headers.to_pool(
                request, identity=job.identity, trace=job.trace, authorization=self._settings.authorization
            ),
            body=request.body,
            deadline_s=step.deadline_s,
        )

    async def _take(self, job: _Job, attempt: _Attempt) -> tuple[Answer, Outcome, bool]:
        """The client's answer from a pool's. False: the generator of its body owns the try from now on."""
        reply = attempt.reply
        if 300 <= reply.status < 400:
            text = "the pool answered with a redirect, which is not followed"
            return self._error(job, 502, text, pool_id=attempt.at.pool_id), Outcome.FAILED, True
        more = self._more(job, attempt)
        passed = headers.to_client(reply.headers, identity=job.identity, more=more)
        small = reply.length is not None and reply.length <= SMALL_BYTES
        if reply.status in RETRIED or small:
            body = await reply.whole()
            if reply.status in RETRIED:
                answer = Answer(
                    status=reply.status, body=body, content_type=reply.content_type, headers=passed
                )
                return answer, Outcome.FAILED, True
            job.first_s, job.sent = self._since(job), len(body)
            self._finish(job, reply.status, attempt.at.pool_id)
            answer = Answer(status=reply.status, body=body, content_type=reply.content_type, headers=passed)
            return answer, Outcome.OK, True
        pieces = reply.pieces()
        first = await anext(pieces, b"")  # until it is there, there may be another try
        length: Pairs = () if reply.length is None else (("content-length", str(reply.length)),)
        body_pieces = self._stream(job, attempt, first, pieces)
        await anext(body_pieces)  # up to where its finally holds, so that closing it ends the try
        return (
            Answer(
                status=reply.status,
                body=body_pieces,
                content_type=reply.content_type,
                headers=(*passed, *length),
            ),
            Outcome.OK,
            False,
        )

    async def _stream(
        self, job: _Job, attempt: _Attempt, first: bytes, pieces: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes, None]:
        """The body as it comes; first an empty piece, which nobody gets."""
        outcome = Outcome.CANCELLED
        pool_id = attempt.at.pool_id
        note = "client gone"
        try:
            yield b""
            job.first_s = self._since(job)
            if first:
                job.sent += len(first)
                yield first
            async for piece in pieces:
                job.sent += len(piece)
                yield piece
            outcome, note = Outcome.OK, ""
        except Failed as problem:
            outcome, note = problem.outcome, str(problem)
            self._metrics.broken_answers.labels(self._name(pool_id)).inc()
            if attempt.reply.content_type.startswith(EVENT_STREAM):
                yield _last_event(str(problem))
            raise
        finally:
            attempt.reply.close()
            self.running -= 1
            self._ended(attempt.at, outcome)
            if outcome is Outcome.CANCELLED:
                self._metrics.client_aborts.inc()
            self._finish(job, attempt.reply.status, pool_id, note=note)

    def _ended(self, at: Try, outcome: Outcome) -> None:
        pool = self._name(at.pool_id)
        self._selector.ended(at, outcome, self._clock.monotonic())
        self._metrics.in_flight.labels(pool).dec()
        self._metrics.attempts.labels(pool, outcome.value).inc()

    def _more(self, job: _Job, attempt: _Attempt) -> Pairs:
        """What the answer says of the choice (GR-24)."""
        ranked = attempt.ranked
        pool = self._selector.directory.get(ranked.pool_id)
        found = [
            ("x-dynamo-pool-id", ranked.pool_id),
            ("x-dynamo-routing-cost", f"{ranked.cost:.6g}"),
            ("x-dynamo-routing-basis", ranked.basis),
        ]
        if pool is not None and pool.location.region:
            found.append(("x-dynamo-target-region", pool.location.region))
        age_s = self._selector.load_age_s(ranked.pool_id, job.facts.model, self._clock.monotonic())
        if age_s is not None:
            found.append(("x-dynamo-load-age-ms", str(round(1000 * age_s))))
        return tuple(found)

    def _refused(self, job: _Job, status: int, message: str, **more: object) -> Answer:
        answer = self._error(job, status, message, **more)
        self._finish(job, status, "")
        return answer

    def _error(self, job: _Job, status: int, message: str, **more: object) -> Answer:
        retry = {"retry-after": "1"} if status == 503 else {}
        return openai_error(status, message, headers={headers.REQUEST_ID: job.identity, **retry}, **more)

    def _finish(self, job: _Job, status: int, pool_id: str, *, note: str = "") -> None:
        """Count a request that has ended, and write its line."""
        pool = self._name(pool_id) if pool_id else ""
        known = self._selector.directory.has_model(job.facts.model)
        self._metrics.requests.labels(job.facts.model if known else UNKNOWN, pool, str(status)).inc()
        whole_s = self._since(job)
        if pool_id:
            if job.first_s is not None:
                self._metrics.first_byte.labels(pool).observe(job.first_s)
            self._metrics.duration.labels(pool).observe(whole_s)
            self._record(pool_id, job.first_s or whole_s, whole_s, status < 500 and not note)
        self._done(job, status, pool, note=note)

    def _done(self, job: _Job, status: int, pool: str, *, note: str = "") -> None:
        self._log.write(
            Line(
                request_id=job.identity,
                trace=job.trace,
                path=job.request.path,
                model=job.facts.model,
                status=status,
                pool=pool,
                attempts=tuple(job.attempts),
                stream=job.facts.stream,
                request_bytes=len(job.request.body),
                answer_bytes=job.sent,
                first_byte_s=job.first_s,
                whole_s=self._since(job),
                peer=job.request.peer,
                note=note,
            )
        )

    def _since(self, job: _Job) -> float:
        return max(0.0, asyncio.get_running_loop().time() - job.request.arrived_s)

    def _name(self, pool_id: str) -> str:
        pool = self._selector.directory.get(pool_id)
        return pool_id if pool is None else str(pool.key)


class _Step(NamedTuple):
    """Where a try goes, why, and by when all must be over."""

    at: Try
    ranked: Ranked
    deadline_s: float


def _last_event(message: str) -> bytes:
    """The end of an event stream whose pool failed: an error object, and no `[DONE]` after it."""
    body = {"message": message, "type": "server_error", "param": None, "code": "stream_broken"}
    return b"\n\ndata: " + json_body({"error": body}) + b"\n"
