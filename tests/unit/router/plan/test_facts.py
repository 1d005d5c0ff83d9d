"""Bodies of requests into facts, and what is said of those that cannot be read."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from isthmus.api.pools import InvalidField
from isthmus.router.plan.facts import MAX_MODEL_BYTES, MAX_PRIORITY, read


def body(**keys: Any) -> bytes:
    return json.dumps({"model": "m"} | keys).encode()


def tokens(**keys: Any) -> tuple[int, bool]:
    found = read(body(**keys))
    return found.prompt_tokens, found.exact


@pytest.mark.covers("GR-14", "GR-15")
def test_facts_must_be_found_where_clients_put_them() -> None:
    nvext = {
        "router": {"ttft_target": 0, "itl_target": 12.5},
        "agent_hints": {"priority": -3, "x": 1},
        "y": [],
    }
    found = read(body(stream=True, nvext=nvext, temperature=0.5))
    assert (found.model, found.stream, found.priority) == ("m", True, -3)
    assert (found.ttft_target_ms, found.itl_target_ms) == (0.0, 12.5)


@pytest.mark.covers("GR-14", "GR-15")
@pytest.mark.parametrize("nvext", [None, {}, {"router": None, "agent_hints": None}, {"router": {}}])
def test_what_the_client_did_not_say_must_be_none(nvext: Any) -> None:
    found = read(body(nvext=nvext, stream=None))
    assert (found.priority, found.ttft_target_ms, found.itl_target_ms) == (None, None, None)
    assert not found.stream


@pytest.mark.covers("GR-13")
@pytest.mark.parametrize(("ids", "count"), [([], 0), ([7], 1), ([1, 22, 333], 3), (list(range(5000)), 5000)])
@pytest.mark.parametrize("key", ["prompt", "input"])
def test_token_ids_must_be_counted(key: str, ids: list[int], count: int) -> None:
    assert tokens(**{key: ids}) == (count, True)
    spaced = b'{"model": "m", "%b" : [ %b ] }' % (key.encode(), b" ,\n\t ".join(b"%d" % each for each in ids))
    assert read(spaced).prompt_tokens == count
    assert read(spaced).exact


@pytest.mark.covers("GR-13")
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 1000])
def test_packed_token_ids_must_count_four_bytes_each(count: int) -> None:
    packed = base64.b64encode(struct.pack(f"<{count}I", *range(count))).decode()
    assert tokens(nvext={"token_data": packed}, prompt="x" * 400) == (count, True)
    assert tokens(nvext={"token_data": list(range(count))}, prompt="x" * 400) == (count, True)


@pytest.mark.covers("GR-13")
@pytest.mark.parametrize("data", ["AAA=", "AAAAA", "AAAAAA", "AAAAAAA=", None])
def test_packed_bytes_that_are_no_whole_numbers_must_not_be_counted(data: Any) -> None:
    assert tokens(nvext={"token_data": data}, prompt="x" * 398) == (100, False)


@pytest.mark.covers("GR-13")
@pytest.mark.parametrize(
    ("keys", "count"),
    [
        ({}, 0),
        ({"prompt": "x" * 398}, 100),
        ({"messages": [{"role": "user", "content": "x" * 200}]}, 58),
        ({"input": "x" * 38, "instructions": "y" * 38}, 20),
        ({"messages": "x" * 38, "tools": "y" * 38}, 20),
        ({"prompt": [1, -2]}, 1),
        ({"prompt": [1.5, 2]}, 2),
        ({"prompt": [[1, 2], [3]]}, 3),
        ({"prompt": ["a", 1]}, 2),
        ({"prompt": 12345678}, 2),
    ],
)
def test_text_must_be_estimated_at_four_bytes_a_token(keys: dict[str, Any], count: int) -> None:
    assert tokens(**keys) == (count, False)


@pytest.mark.covers("GR-13")
def test_images_must_not_count_as_text() -> None:
    def chat(*urls: str) -> int:
        return tokens(messages=[{"content": [{"image_url": {"url": url}} for url in urls]}])[0]

    one, two = "data:image/png;base64," + "A" * 9000, "data:image/png;base64," + "B" * 5000
    assert chat(one, two) == chat("data:image/png;base64,", "data:image/png;base64,")


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"", ""),
        (b"{", ""),
        (b"[]", ""),
        (b"null", ""),
        (b"\xff\xfe", ""),
        (b'{"model":"m"} {}', ""),
        (b'{"model":"\xff"}', ""),
        (b'{"model":"\\ud800"}', ""),
        (b'{"a":' * 50_000, ""),
        (b'{"stream":true}', "model"),
        (b'{"model":null}', "model"),
        (b'{"model":5}', "model"),
        (b'{"model":""}', "model"),
        (b'{"model":"m","stream":"yes"}', "stream"),
        (b'{"model":"m","nvext":[]}', "nvext"),
        (b'{"model":"m","nvext":{"router":7}}', "nvext.router"),
        (b'{"model":"m","nvext":{"router":{"ttft_target":"1"}}}', "nvext.router.ttft_target"),
        (b'{"model":"m","nvext":{"router":{"ttft_target":-1}}}', "nvext.router.ttft_target"),
        (b'{"model":"m","nvext":{"router":{"itl_target":1e12}}}', "nvext.router.itl_target"),
        (b'{"model":"m","nvext":{"router":{"itl_target":1e999}}}', "nvext.router.itl_target"),
        (b'{"model":"m","nvext":{"agent_hints":{"priority":true}}}', "nvext.agent_hints.priority"),
        (b'{"model":"m","nvext":{"agent_hints":{"priority":1.0}}}', "nvext.agent_hints.priority"),
        (b'{"model":"m","nvext":{"agent_hints":{"priority":2147483648}}}', "nvext.agent_hints.priority"),
    ],
)
def test_bad_body_must_be_refused_with_its_field(raw: bytes, field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        read(raw)
    assert caught.value.field == field
    assert len(str(caught.value)) < 200


def test_bounds_of_a_body_must_be_taken() -> None:
    assert read(body(model="m" * MAX_MODEL_BYTES)).model
    with pytest.raises(InvalidField):
        read(body(model="é" * (MAX_MODEL_BYTES // 2) + "x"))
    for priority in (MAX_PRIORITY, -MAX_PRIORITY):
        assert read(body(nvext={"agent_hints": {"priority": priority}})).priority == priority
