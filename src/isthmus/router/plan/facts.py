"""The body of an OpenAI request, as far as routing needs it: bytes in, RequestFacts out, or what is wrong.

proxy.py calls `read` once per request, on the hot path: msgspec checks all of the JSON and skips what is not
named here, and the prompt is only measured, never decoded. The body itself goes on unchanged. Token IDs are
counted (GR-13): an array of them, or `nvext.token_data` as base64 of little-endian 32-bit numbers. The size
of a prompt in text is estimated: bytes of the JSON of messages, prompt, input, instructions and tools, less
the base64 in it (images, sound), divided by BYTES_PER_TOKEN. Roles and punctuation count as tokens too, as
chat templates make some of them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from isthmus.api.pools import InvalidField
from isthmus.router.plan.model import RequestFacts

BYTES_PER_TOKEN: Final = 4
MAX_MODEL_BYTES: Final = 512
MAX_PRIORITY: Final = 2**31 - 1
MAX_TARGET_MS: Final = 1e12

_EMPTY: Final = msgspec.Raw(b"")
_NUMBERS: Final = b"0123456789, \t\r\n"
_BASE64: Final = b";base64,"


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
    instructions: msgspec.Raw = _EMPTY
    tools: msgspec.Raw = _EMPTY
    nvext: _Nvext | None = None


_decode: Final = msgspec.json.Decoder(_Body)


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
    """(tokens, whether they were counted)."""
    packed = _packed_ids(bytes(nvext.token_data))
    if packed is not None:
        return packed, True
    for raw in (nvext.token_data, found.prompt, found.input):
        count = _token_ids(bytes(raw))
        if count is not None:
            return count, True
    parts = (found.messages, found.prompt, found.input, found.instructions, found.tools)
    return sum(_text_bytes(bytes(raw)) for raw in parts) // BYTES_PER_TOKEN, False


def _token_ids(raw: bytes) -> int | None:
    """How many token IDs, where it is one array of them. The JSON is known to be right, so that an array with
    nothing but digits and commas inside is one."""
    if raw[:1] != b"[" or raw.translate(None, _NUMBERS) != b"[]":
        return None
    return raw.count(b",") + 1 if raw[1:-1].strip() else 0


def _packed_ids(raw: bytes) -> int | None:
    """How many token IDs, where it is a text with base64 of whole 32-bit numbers."""
    if raw[:1] != b'"':
        return None
    text = raw[1:-1]
    size_bytes = len(text) * 3 // 4 - text[-2:].count(b"=")
    return size_bytes // 4 if len(text) % 4 == 0 and size_bytes % 4 == 0 else None


def _text_bytes(raw: bytes) -> int:
    """How long the JSON is without what is base64 in it."""
    size_bytes, at = len(raw), 0
    while (begin := raw.find(_BASE64, at)) != -1:
        at = raw.find(b'"', begin)
        size_bytes -= at - begin - len(_BASE64)
    return size_bytes


def _target(field: str, value: float | None) -> float | None:
    if value is not None and not 0 <= value < MAX_TARGET_MS:
        raise InvalidField(field, "must be a number of milliseconds, 0 or more")
    return value


def _invalid(text: str) -> InvalidField:
    message, _, path = text.partition(" - at `$")
    field = path.rstrip("`").removeprefix(".")
    if "missing required field `model`" in message:
        return InvalidField("model", "is missing")
    return InvalidField(field, message[:1].lower() + message[1:])
