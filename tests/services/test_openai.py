"""The sandbox's OpenAI server answers the official client, counts as Dynamo does, and drains."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from isthmus.clock import SystemClock
from isthmus.sandbox.completions import said
from isthmus.sandbox.openai import Server, Settings
from isthmus.web.limits import Limits
from isthmus.web.routes import Routes
from isthmus.web.server import Listener
from tests.support.eventually import eventually

MODEL = "example/tiny"
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello there"}]


@pytest.fixture
async def url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A server with the settings of the test's parameter."""
    settings = getattr(request, "param", {})
    server = Server(Settings(models={MODEL: ("tiny",)}, name="me", **settings), SystemClock())
    listener = Listener(
        "--port", Routes(server.routes()), hosts=["127.0.0.1"], port=0, limits=Limits(drain_s=1)
    )
    await listener.serve()
    yield f"http://127.0.0.1:{listener.addresses[0][1]}"
    await listener.stop()


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as made:
        yield made


async def metrics(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        return await answer.text()


async def test_models_must_be_listed_with_their_aliases(client: AsyncOpenAI) -> None:
    assert [each.id async for each in client.models.list()] == [MODEL, "tiny"]


@pytest.mark.parametrize("model", [MODEL, "tiny"])
async def test_chat_must_be_answered_whole(client: AsyncOpenAI, model: str) -> None:
    answer = await client.chat.completions.create(model=model, messages=HELLO, max_tokens=5)
    assert answer.choices[0].message.content == said(5)
    assert answer.system_fingerprint == "me"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2, 5)


@pytest.mark.parametrize("url", [{"token_s": 0.2}], indirect=True)
async def test_chat_must_be_streamed_as_it_is_made(client: AsyncOpenAI) -> None:
    began = time.monotonic()
    text, first_s, usage, roles = "", 0.0, None, []
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
    )
    async for event in stream:
        usage = event.usage or usage
        for choice in event.choices:
            first_s = first_s or time.monotonic() - began
            text += choice.delta.content or ""
            roles.append(choice.delta.role)
    assert roles == ["assistant"] + 5 * [None]
    assert text == said(5)
    assert usage is not None
    assert usage.total_tokens == 7
    assert first_s < 0.6 < time.monotonic() - began


async def test_completions_must_be_answered_whole_and_streamed(client: AsyncOpenAI) -> None:
    whole = await client.completions.create(model=MODEL, prompt="hello", max_tokens=3)
    assert whole.choices[0].text == said(3)
    stream = await client.completions.create(model=MODEL, prompt=[1, 2], max_tokens=3, stream=True)
    assert "".join([event.choices[0].text async for event in stream]) == said(3)


async def test_embeddings_must_be_answered_as_numbers_and_packed(url: str, client: AsyncOpenAI) -> None:
    answer = await client.embeddings.create(model=MODEL, input=["a b", "c"], encoding_format="float")
    assert answer.usage.prompt_tokens == 3
    assert len(answer.data) == 2
    assert answer.data[0].embedding[0] == 0.5
    packed = await client.embeddings.create(model=MODEL, input="a")  # base64, which the client unpacks
    assert packed.data[0].embedding == pytest.approx(answer.data[0].embedding)
    body = {"model": MODEL, "input": "a", "encoding_format": "base64"}
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/embeddings", json=body) as raw:
        assert isinstance((await raw.json())["data"][0]["embedding"], str)


async def test_unknown_model_must_not_be_found(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="'other' does not exist"):
        await client.chat.completions.create(model="other", messages=HELLO)


@pytest.mark.parametrize("body", [b"{", b"{}", b'{"model":"example/tiny"}', b'{"model":1,"messages":[]}'])
async def test_body_that_is_no_request_must_be_refused(url: str, body: bytes) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/chat/completions", data=body) as answer,
    ):
        assert answer.status == 400
        assert (await answer.json())["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("url", [{"concurrency": 1, "token_s": 0.3}], indirect=True)
async def test_requests_must_be_counted_as_queued_until_their_first_token(
    url: str, client: AsyncOpenAI
) -> None:
    stream = await client.completions.create(model=MODEL, prompt="x", max_tokens=20, stream=True)
    await anext(aiter(stream))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(client.completions.create(model=MODEL, prompt="x", max_tokens=1))

        async def one_waits() -> None:
            assert f'dynamo_frontend_queued_requests{{model="{MODEL}"}} 1.0' in await metrics(url)

        await eventually(one_waits)
        assert f'dynamo_frontend_inflight_requests{{model="{MODEL}"}} 2.0' in await metrics(url)
        await stream.close()
        await waiting
    text = await metrics(url)
    assert f'dynamo_frontend_inflight_requests{{model="{MODEL}"}} 0.0' in text
    assert f'dynamo_frontend_queued_requests{{model="{MODEL}"}} 0.0' in text
    assert f'endpoint="completions",model="{MODEL}",request_type="unary",status="success"}} 1.0' in text
    assert f'endpoint="completions",model="{MODEL}",request_type="stream",status="error"}} 1.0' in text


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The server as a process of its own, and its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "isthmus.sandbox.openai", "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        started = subprocess.Popen([*command, "--token-delay-ms", "50"], stderr=log)
    yield started, port
    started.kill()
    started.wait()


async def test_server_must_let_answers_end_when_it_is_told_to_stop(
    process: tuple[subprocess.Popen[bytes], int],
) -> None:
    started, port = process
    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client:
        while True:
            try:
                await client.models.list()
                break
            except openai.APIConnectionError:
                await asyncio.sleep(0.05)
        stream = await client.completions.create(model=MODEL, prompt="x", max_tokens=30, stream=True)
        pieces = [(await anext(aiter(stream))).choices[0].text]
        started.send_signal(signal.SIGTERM)
        pieces += [event.choices[0].text async for event in stream]
    assert "".join(pieces) == said(30)
    assert await asyncio.to_thread(started.wait, 10) == 0
