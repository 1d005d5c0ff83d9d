"""Chat requests from the official openai client, some at a time without a pause, for demos and tests.

`Traffic` runs in a thread with an event loop of its own, so that a story that blocks can be told meanwhile.
Every second request is streamed, the others wait for whole answers; each answer is compared with the words
that openai.py always says, so a lost, doubled or changed token is a failure. The client never repeats
anything. As a program (`python -m isthmus.sandbox.traffic URL`) it says each ten seconds what became of them.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import click

from isthmus.clock import SystemClock
from isthmus.errors import UserError
from isthmus.sandbox.completions import said
from isthmus.sandbox.ledger import Ledger, Outcome, Result, Tally

if TYPE_CHECKING:
    from openai import AsyncOpenAI

TIMEOUT_S: Final = 30.0
EVERY_S: Final = 10.0
REST_S: Final = 0.05
"""After a request that was not answered, so that a router that is away is not stormed."""


def check_client() -> None:
    """Raise UserError where the official client is not installed."""
    try:
        import openai  # noqa: F401 - whether it is there
    except ImportError as error:
        raise UserError(
            "the openai package is not installed", hint="`make setup` installs it, or: pip install openai"
        ) from error


def judge(text: str, tokens: int) -> Outcome:
    """How a request ended whose stream had this text and ended without an error: cut where the rest is
    missing, failed where nothing came or the words are others than were said."""
    wanted = said(tokens)
    if text == wanted:
        return Outcome.ANSWERED
    return Outcome.CUT if text and wanted.startswith(text) else Outcome.FAILED


class Traffic:
    """A context manager: requests run until it is left. `url` is the address of /v1's server."""

    def __init__(self, url: str, *, model: str, workers: int, tokens: int) -> None:
        self.ledger = Ledger()
        self._url = url
        self._model = model
        self._workers = workers
        self._tokens = tokens
        self._clock = SystemClock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Begin no request any more, and wait for those under way."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._drive())

    async def _drive(self) -> None:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        client = AsyncOpenAI(
            base_url=f"{self._url}/v1",
            api_key="none",
            max_retries=0,
            timeout=TIMEOUT_S,
            # A person's own proxy has no part in this.
            http_client=DefaultAsyncHttpxClient(trust_env=False),
        )
        async with client, asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(client, number))

    async def _work(self, client: AsyncOpenAI, number: int) -> None:
        for count in itertools.count(number):
            if self._stop.is_set():
                return
            streaming = count % 2 == 0
            result = await (self._stream(client) if streaming else self._whole(client))
            self.ledger.add(result)
            if result.outcome is not Outcome.ANSWERED:
                await self._clock.sleep(REST_S)

    async def _stream(self, client: AsyncOpenAI) -> Result:
        began, text, by = self._clock.monotonic(), "", ""
        try:
            stream = await client.chat.completions.create(
                model=self._model,
                messages=[{"role": "user", "content": "Where are you?"}],
                max_tokens=self._tokens,
                stream=True,
            )
            async for event in stream:
                by = event.system_fingerprint or by
                text += event.choices[0].delta.content or "" if event.choices else ""
        except Exception as error:  # whatever the client makes of it
            outcome = Outcome.CUT if text else Outcome.FAILED
            return self._result(outcome, began, by, f"{type(error).__name__}: {error}")
        return self._result(judge(text, self._tokens), began, by, f"the answer was {text!r}")

    async def _whole(self, client: AsyncOpenAI) -> Result:
        began = self._clock.monotonic()
        try:
            answer = await client.chat.completions.create(
                model=self._model,
                messages=[{"role": "user", "content": "Where are you?"}],
                max_tokens=self._tokens,
            )
        except Exception as error:  # whatever the client makes of it
            return self._result(Outcome.FAILED, began, "", f"{type(error).__name__}: {error}")
        text, by = answer.choices[0].message.content, answer.system_fingerprint or ""
        whole = judge(text or "", self._tokens) is Outcome.ANSWERED
        outcome = Outcome.ANSWERED if whole else Outcome.FAILED
        return self._result(outcome, began, by, f"the answer was {text!r}")

    def _result(self, outcome: Outcome, began: float, by: str, detail: str = "") -> Result:
        ended = self._clock.monotonic()
        return Result(outcome=outcome, began=began, ended=ended, by=by, detail=detail)


@click.command(context_settings={"show_default": True})
@click.argument("url")
@click.option("--model", default="example/tiny")
@click.option("--workers", type=int, default=2, help="Requests at a time.")
@click.option("--tokens", type=int, default=25, help="Of each answer.")
def command(url: str, model: str, workers: int, tokens: int) -> None:
    """Ask the server at URL until the process is ended."""
    told = Tally()
    with Traffic(url, model=model, workers=workers, tokens=tokens) as traffic:
        while True:
            threading.Event().wait(EVERY_S)
            now = traffic.ledger.tally()
            click.echo(now.minus(told).describe())
            told = now


if __name__ == "__main__":
    command()
