"""The body of an OpenAI request, as far as routing needs it: bytes in, RequestFacts out, or what is wrong.

proxy.py calls `read` once per request, on the hot path: msgspec skips what is not named here, and the prompt
is only measured, not decoded, unless it is token IDs. The body itself goes on unchanged. The size of a
prompt in text is estimated as the bytes of its JSON divided by BYTES_PER_TOKEN, which counts roles and
punctuation as tokens too, as chat templates do.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from isthmus.api.pools import InvalidField
from isthmus.router.plan.model import RequestFacts

BYTES_PER_TOKEN: Final = 4
MAX_MODEL_BYTES: Final = 512
MAX_PRIORITY: Final = 2**31 - 1

_EMPTY: Final = msgspec.Raw(b"")


class _Targets(msgspec.Struct):
    ttft_target: float | None = None
    itl_target: float | None = None


class _Hints(msgspec.Struct):
    priority: int | None = None


class _Nvext(msgspec.Struct):
    router: _Targets | None = None
    agent_hints: _Hints | None = None
    token_data: msgspec.Raw = _EMPTY


class _Body(msgspec.Struct):
    model: str
    stream: bool | None = None
    messages: msgspec.Raw = _EMPTY
    prompt: msgspec.Raw = _EMPTY
    input: msgspec.Raw = _EMPTY
    nvext: _Nvext | None = None


_decode: Final = msgspec.json.Decoder(_Body)
_numbers: Final = msgspec.json.Decoder(list[int])


def read(body: bytes) -> RequestFacts:
    """The facts of a request. Raises InvalidField with the path of what is missing or has another type."""
    try:
        found = _decode.decode(body)
    except msgspec.ValidationError as problem:
        raise _invalid(str(problem)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidField("", "the body is not a JSON object") from None
    if not found.model or len(found.model.encode(errors="replace")) > MAX_MODEL_BYTES:
        raise InvalidField("model", f"must be a text of 1 to {MAX_MODEL_BYTES} bytes")
    nvext = found.nvext or _Nvext()
    targets, hints = nvext.router or _Targets(), nvext.agent_hints or _Hints()
    if hints.priority is not None and abs(hints.priority) > MAX_PRIORITY:
        raise InvalidField("nvext.agent_hints.priority", "must be a 32-bit integer")
    tokens, exact = _prompt_tokens(found, nvext)
    return RequestFacts(
        model=found.model,
        stream=bool(found.stream),
        prompt_tokens=tokens,
        exact=exact,
        priority=hints.priority,
        ttft_target_ms=_target("nvext.router.ttft_target", targets.ttft_target),
        itl_target_ms=_target("nvext.router.itl_target", targets.itl_target),
    )


def _prompt_tokens(found: _Body, nvext: _Nvext) -> tuple[int, bool]:
    for raw in (nvext.token_data, found.prompt, found.input):
        count = _token_ids(bytes(raw))
        if count is not None:
            return count, True
    text_bytes = sum(len(bytes(raw)) for raw in (found.messages, found.prompt, found.input))
    return text_bytes // BYTES_PER_TOKEN, False


def _token_ids(raw: bytes) -> int | None:
    """How many token IDs, where it is one array of them."""
    if not raw.startswith(b"[") or raw[1:64].lstrip()[:1] not in b"0123456789":
        return None
    try:
        return len(_numbers.decode(raw))
    except msgspec.DecodeError:
        return None


def _target(field: str, value: float | None) -> float | None:
    if value is not None and not 0 <= value < 1e12:
        raise InvalidField(field, "must be a number of milliseconds, 0 or more")
    return value


def _invalid(text: str) -> InvalidField:
    message, _, path = text.partition(" - at `$")
    field = path.rstrip("`").removeprefix(".")
    if "missing required field `model`" in message:
        return InvalidField("model", "is missing")
    return InvalidField(field, message[:1].lower() + message[1:])


def describe(facts: RequestFacts) -> dict[str, Any]:
    """For the access log."""
    return {"model": facts.model, "stream": facts.stream, "prompt_tokens": facts.prompt_tokens}
