"""OpenAI requests and the JSON of their answers, for the small server of the sandbox (openai.py). Pure.

`read` makes a Wanted of a request's body, or raises BadRequest with what an OpenAI client shows; the other
functions make whole answers and the events of a stream. A token is a word and a blank; what is said is always
the same words, so that a test can tell a lost, doubled or changed token.
"""

from __future__ import annotations

import array
import base64
import itertools
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from isthmus.api.meta import Raw
from isthmus.errors import UserError

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
EMBEDDINGS: Final = "/v1/embeddings"
MODELS: Final = "/v1/models"
DONE: Final = b"data: [DONE]\n\n"
MAX_TOKENS: Final = 100_000
DIMENSIONS: Final = 8
SENTENCE: Final = ("every", "pool", "of", "every", "cluster", "answers", "under", "one", "address")


class BadRequest(UserError):
    """What a client sent cannot be answered. `status` and `code` as OpenAI's."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    @property
    def body(self) -> bytes:
        """The error page."""
        kind = "invalid_request_error"
        return encode({"error": {"message": str(self), "type": kind, "param": None, "code": self.code}})


class Options(msgspec.Struct):
    """stream_options."""

    include_usage: bool = False


class _Body(msgspec.Struct):
    model: str
    messages: list[Raw] | None = None
    prompt: str | list[Any] | None = None
    input: str | list[Any] | None = None
    stream: bool | None = None
    stream_options: Options | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    encoding_format: str = "float"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for. `tokens`: how many to say; `prompt_tokens`: how many were sent, in words; `inputs`:
    how many embeddings."""

    path: str
    model: str
    stream: bool
    usage: bool
    tokens: int
    prompt_tokens: int
    inputs: int
    base64: bool

    @property
    def is_chat(self) -> bool:
        """Whether it came through chat completions."""
        return self.path == CHAT


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What all JSON of one answer has in common. `fingerprint` says who answered."""

    id: str
    created: int
    model: str
    fingerprint: str


_decoder: Final = msgspec.json.Decoder(_Body)
encode: Final = msgspec.json.Encoder().encode


def read(path: str, body: bytes, *, models: frozenset[str], default_tokens: int) -> Wanted:
    """See the module. Raises BadRequest."""
    try:
        found = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequest(400, "invalid_json", f"the body is no such request: {error}") from None
    needed = {CHAT: "messages", COMPLETIONS: "prompt", EMBEDDINGS: "input"}[path]
    if getattr(found, needed) is None:
        raise BadRequest(400, "missing_required_parameter", f"{needed} is missing")
    if found.model not in models:
        raise BadRequest(404, "model_not_found", f"the model {found.model!r} does not exist")
    asked = found.max_completion_tokens if found.max_tokens is None else found.max_tokens
    tokens = default_tokens if asked is None else asked
    if not 1 <= tokens <= MAX_TOKENS:
        raise BadRequest(400, "invalid_value", f"max_tokens must be 1 to {MAX_TOKENS}, got {tokens}")
    return Wanted(
        path=path,
        model=found.model,
        stream=bool(found.stream) and path != EMBEDDINGS,
        usage=found.stream_options is not None and found.stream_options.include_usage,
        tokens=tokens,
        prompt_tokens=_count(found.messages or found.prompt or found.input),
        inputs=len(found.input) if isinstance(found.input, list) else 1,
        base64=found.encoding_format == "base64",
    )


def words(count: int) -> Iterator[str]:
    """The first `count` tokens of what is always said."""
    return (f"{word} " for word in itertools.islice(itertools.cycle(SENTENCE), count))


def said(count: int) -> str:
    """The text of an answer of `count` tokens."""
    return "".join(words(count))


def event(wanted: Wanted, reply: Reply, text: str | None, *, first: bool = False) -> bytes:
    """One event of a stream: a piece of text, or its end where `text` is None."""
    finish = "length" if text is None else None
    choice: Raw
    if wanted.is_chat:
        delta: Raw = {} if text is None else {"content": text}
        choice = {"index": 0, "delta": {"role": "assistant"} | delta if first else delta}
    else:
        choice = {"index": 0, "text": text or "", "logprobs": None}
    kind = "chat.completion.chunk" if wanted.is_chat else "text_completion"
    return _data(_head(reply, kind) | {"choices": [choice | {"finish_reason": finish}]})


def usage_event(wanted: Wanted, reply: Reply) -> bytes:
    """The last event of a stream whose client asked for the usage."""
    kind = "chat.completion.chunk" if wanted.is_chat else "text_completion"
    return _data(_head(reply, kind) | {"choices": [], "usage": _usage(wanted)})


def whole(wanted: Wanted, reply: Reply) -> bytes:
    """An answer that is not streamed."""
    text = said(wanted.tokens)
    choice: Raw = {"index": 0, "finish_reason": "length", "logprobs": None}
    if wanted.is_chat:
        choice["message"] = {"role": "assistant", "content": text, "refusal": None}
    else:
        choice["text"] = text
    kind = "chat.completion" if wanted.is_chat else "text_completion"
    return encode(_head(reply, kind) | {"choices": [choice], "usage": _usage(wanted)})


def embeddings(wanted: Wanted) -> bytes:
    """A vector for each input, always the same."""
    vector = [round(1 / (2 + place), 6) for place in range(DIMENSIONS)]
    floats = array.array("f", vector).tobytes()
    value: Any = base64.b64encode(floats).decode() if wanted.base64 else vector
    rows = [{"object": "embedding", "index": index, "embedding": value} for index in range(wanted.inputs)]
    usage = {"prompt_tokens": wanted.prompt_tokens, "total_tokens": wanted.prompt_tokens}
    return encode({"object": "list", "data": rows, "model": wanted.model, "usage": usage})


def model_list(models: dict[str, tuple[str, ...]], *, created: int) -> bytes:
    """The answer of /v1/models: each model and its aliases, as models of their own."""
    names = [name for model, aliases in models.items() for name in (model, *aliases)]
    rows = [{"id": name, "object": "model", "created": created, "owned_by": "sandbox"} for name in names]
    return encode({"object": "list", "data": rows})


def _head(reply: Reply, kind: str) -> Raw:
    return {
        "id": reply.id,
        "object": kind,
        "created": reply.created,
        "model": reply.model,
        "system_fingerprint": reply.fingerprint,
    }


def _usage(wanted: Wanted) -> Raw:
    return {
        "prompt_tokens": wanted.prompt_tokens,
        "completion_tokens": wanted.tokens,
        "total_tokens": wanted.prompt_tokens + wanted.tokens,
    }


def _data(value: Raw) -> bytes:
    return b"data: " + encode(value) + b"\n\n"


def _count(value: Any) -> int:
    """Words in whatever was sent; a list of numbers is of token IDs."""
    if isinstance(value, str):
        return len(value.split())
    if isinstance(value, list):
        return sum(_count(each) for each in value)
    if isinstance(value, dict):
        return _count(value.get("content") or value.get("text"))
    return 1 if isinstance(value, int) else 0
