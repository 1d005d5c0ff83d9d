"""Workers that take keys from a queue and call a feature's reconcile with each, until they are told to stop.

Keys come from cache subscribers through runtime/queue.py; what reconcile returns or raises says when the key
comes back (`Outcome`, and the table at `_settle`). A failure of one key never ends a worker nor delays
another key (INV). Reconcile is level-triggered: it gets a key, never an event, and must say the user's errors
in status itself. Its metrics have controller-runtime's names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import msgspec

from isthmus import logs
from isthmus.api.meta import Key
from isthmus.errors import IsthmusError, UserError
from isthmus.kube.errors import ApiError, Conflict, WriteRefused
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.queue import QueueShutDown, WorkQueue
from isthmus.runtime.tasks import Policy, Supervisor

log = logs.get(__name__)

BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
)
"""Seconds: those of controller_runtime_reconcile_time_seconds."""

TIMEOUT_S: Final = 300.0
"""Default bound of one reconcile: far above a healthy one, so that a hung call cannot hold a worker for
ever."""

SHOWN: Final = 3
"""Messages in the log of one failure."""


class Done(msgspec.Struct, frozen=True, gc=False):
    """Nothing is left to do for this key until something changes."""


class Again(msgspec.Struct, frozen=True, gc=False):
    """Call again in `after_s` seconds, even if nothing changes. Not a failure: no backoff."""

    after_s: float


Outcome = Done | Again
DONE: Final = Done()
Reconcile = Callable[[Key], Awaitable[Outcome]]


class Controller:
    """See the module. `timeout_s` bounds one reconcile; at most `workers` of them run at once."""

    def __init__(
        self,
        name: str,
        *,
        reconcile: Reconcile,
        queue: WorkQueue,
        metrics: Metrics,
        workers: int = 5,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.name = name
        self.queue = queue
        self.active = 0
        self._reconcile = reconcile
        self._workers = workers
        self._timeout_s = timeout_s
        self._metrics = metrics
        self._stopping = asyncio.Event()
        self._said: dict[Key, str] = {}
        label = ["controller"]
        self._results = metrics.counter(
            "controller_runtime_reconcile_total", "Reconciles by result.", ["controller", "result"]
        )
        self._errors = metrics.counter(
            "controller_runtime_reconcile_errors_total", "Reconciles that failed.", label
        ).labels(name)
        self._terminal = metrics.counter(
            "controller_runtime_terminal_reconcile_errors_total", "Failures that are not retried.", label
        ).labels(name)
        self._timeouts = metrics.counter(
            "controller_runtime_reconcile_timeouts_total", "Reconciles cut at their time limit.", label
        ).labels(name)
        self._time = metrics.histogram(
            "controller_runtime_reconcile_time_seconds", "Length of a reconcile.", label, buckets=BUCKETS
        ).labels(name)
        for gauge, text, read in (
            ("controller_runtime_active_workers", "Workers at work.", lambda: float(self.active)),
            ("controller_runtime_max_concurrent_reconciles", "Workers.", lambda: float(workers)),
        ):
            metrics.read_gauge(gauge, text, read, controller=name)

    async def run(self) -> None:
        """Work until stop(); return when the reconciles that ran then have ended. Cancelling cuts them."""
        self.queue.open()
        async with Supervisor(self.queue.clock, self._metrics) as tasks:
            tasks.start(f"{self.name}/timer", self.queue.run, policy=Policy.RESTART)
            workers = [f"{self.name}/worker-{index}" for index in range(self._workers)]
            for worker in workers:
                tasks.start(worker, self._work, policy=Policy.RESTART, until=self._stopping)
            await self._stopping.wait()
            await tasks.finish(workers)

    def stop(self) -> None:
        """Take no more keys; run() returns when the running reconciles have ended."""
        self._stopping.set()
        self.queue.shut_down()

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueShutDown:
                return
            self.active += 1
            try:
                await self._once(key)
            except BaseException:
                self.queue.add(key)  # this worker was cancelled; the one that replaces it must see the key
                raise
            finally:
                self.active -= 1
                self.queue.done(key)
            await asyncio.sleep(0)  # a reconcile that never waits must not starve the watches

    async def _once(self, key: Key) -> None:
        clock = self.queue.clock
        began = clock.monotonic()
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                outcome = await self._reconcile(key)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._settle(key, error, False)  # something inside was cancelled, not this worker
        except Exception as error:
            self._settle(key, error, limit.expired())
        else:
            self._said.pop(key, None)
            self.queue.forget(key)
            if isinstance(outcome, Again):
                self.queue.add_after(key, outcome.after_s)
                self._results.labels(self.name, "requeue_after").inc()
            else:
                self._results.labels(self.name, "success").inc()
        finally:
            self._time.observe(clock.monotonic() - began)

    def _settle(self, key: Key, error: BaseException, timed_out: bool) -> None:
        """What a failure means for its key.

        UserError of ours         wait for a change; reconcile has said it in status. Logged once per text.
        Conflict                  somebody else wrote first: read and decide again, after a short backoff.
        WriteRefused              this process may not write now; it is about to end, or to lead again.
        anything else             backoff, and Retry-After where the server gave one. An ApiError that is the
                                  user's (403, 422) too: what would mend it is in no object that we watch.
        """
        errors = tuple(_leaves(error))
        if all(isinstance(one, UserError) and not isinstance(one, ApiError) for one in errors):
            self.queue.forget(key)
            self._results.labels(self.name, "error").inc()
            self._errors.inc()
            self._terminal.inc()
            text = str(error)
            if self._said.get(key) != text:
                self._said[key] = text
                log.warning("waiting for a person to change this", controller=self.name, key=key, error=text)
            return
        after = max((one.retry_after_s or 0.0 for one in errors if isinstance(one, ApiError)), default=0.0)
        delay = self.queue.retry(key, at_least_s=after)
        if all(isinstance(one, Conflict | WriteRefused) for one in errors):
            self._results.labels(self.name, "requeue").inc()
            log.debug("somebody else wrote first", controller=self.name, key=key, error=str(error))
            return
        self._results.labels(self.name, "error").inc()
        self._errors.inc()
        if timed_out:
            self._timeouts.inc()
        known = all(isinstance(one, IsthmusError) for one in errors)
        log.error(
            "reconcile failed; it will be tried again",
            controller=self.name,
            key=key,
            delay_s=round(delay, 3),
            error=_text(errors),
            exc_info=None if known else error,
        )


def _text(errors: Sequence[BaseException]) -> str:
    """The distinct messages in one line, the first few of them."""
    texts = list(dict.fromkeys(str(one) or type(one).__name__ for one in errors))
    more = f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions that a group holds, or the exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
