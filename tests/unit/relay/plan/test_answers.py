"""What frontends answer: lists of models and pages of metrics, good and hostile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.api.pools import InvalidField
from isthmus.relay.plan.answers import read_models
from isthmus.relay.plan.metrics import MAX_SERIES, read_load
from isthmus.relay.plan.model import Card, Sample


def models(*entries: Any) -> bytes:
    return json.dumps({"object": "list", "data": list(entries)}).encode()


@pytest.mark.covers("RL-9")
def test_models_must_be_read_once_each_with_the_base_of_adapters() -> None:
    body = models(
        {"id": "b", "object": "model"}, {"id": "b"}, {"id": "a", "parent": "b"}, {"id": "c", "parent": None}
    )
    assert read_models(body) == (Card("a", "b"), Card("b"), Card("c"))


@pytest.mark.parametrize(
    "entry",
    [
        None,
        7,
        "x",
        {},
        {"id": 7},
        {"id": ""},
        {"id": "a\n"},
        {"id": "x" * 300},
        {"id": "a b "},
    ],
)
def test_entry_that_cannot_be_used_must_leave_the_others(entry: Any) -> None:
    assert read_models(models(entry, {"id": "good"})) == (Card("good"),)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"data":{}}', b'{"models":[]}', b"\xff", b"[" * 100_000, models({"id": "\ud800"})],
)
def test_body_that_is_no_list_must_be_refused(body: bytes) -> None:
    with pytest.raises(InvalidField):
        read_models(body)


def test_models_must_be_bounded() -> None:
    assert len(read_models(models(*({"id": f"m{number}"} for number in range(1000))))) == 256


DYNAMO = """\
# HELP dynamo_frontend_inflight_requests Requests.
# TYPE dynamo_frontend_inflight_requests gauge
dynamo_frontend_inflight_requests{model="tiny"} 12
dynamo_frontend_queued_requests{model="tiny"} 5
dynamo_frontend_inflight_requests{model="big"} 1
dynamo_frontend_queued_requests{model="big"} 2
dynamo_frontend_requests_total{endpoint="chat",model="tiny",status="success"} 40
dynamo_frontend_requests_total{endpoint="chat",model="tiny",status="error"} 3
dynamo_frontend_output_tokens_total{model="tiny"} 800
dynamo_frontend_input_sequence_tokens_sum{model="tiny"} 90
dynamo_frontend_model_max_num_seqs{model="tiny"} 64
dynamo_frontend_queued_requests_other{model="tiny"} 99
"""
VLLM = """\
vllm:num_requests_running{engine="0",model_name="a/b"} 3.0
vllm:num_requests_running{engine="1",model_name="a/b"} 4.0
vllm:num_requests_waiting{engine="0",model_name="a/b"} 2.0
vllm:num_requests_waiting{engine="1",model_name="a/b"} 0.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="a/b"} 9.0
vllm:prompt_tokens_total{engine="0",model_name="a/b"} 100.0
"""


@pytest.mark.covers("RL-11")
def test_load_must_be_read_from_dynamo_vllm_and_sglang() -> None:
    assert read_load(DYNAMO.encode()) == {
        "big": Sample(awaiting=1, generating=0),
        "tiny": Sample(
            awaiting=5,
            generating=7,
            completed=40,
            failed=3,
            output_tokens=800,
            input_tokens=90,
            max_sequences=64,
        ),
    }
    assert read_load(VLLM.encode()) == {
        "a/b": Sample(awaiting=2, generating=7, completed=9, input_tokens=100)
    }
    sglang = b'sglang:num_running_reqs{model_name="s"} 1\nsglang:num_queue_reqs{model_name="s"} 2\n'
    assert read_load(sglang) == {"s": Sample(awaiting=2, generating=1)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{model="a}b",x="c"} 2', {"a}b": 2}),
        ('{model="a\\"b\\\\"} 2 1700000000', {'a"b\\': 2}),
        ('{x="1", model="a", } 2', {"a": 2}),
        ('{model="a"} 1e1', {"a": 10}),
        ('{model="a"} NaN', None),
        ('{model="a"} -1', None),
        ('{model="a"} +Inf', None),
        ('{model="a"} 1e300', None),
        ('{model="a"} word', None),
        ("{model=a} 2", None),
        ('{model=""} 2', None),
        (" 2", None),
        ('{model="a"', None),
    ],
)
def test_line_must_be_read_right_or_not_at_all(line: str, expected: dict[str, int] | None) -> None:
    found = read_load(f"dynamo_frontend_queued_requests{line}\n".encode())
    awaiting = None if found is None else {model: sample.awaiting for model, sample in found.items()}
    assert awaiting == expected


def test_gauge_with_one_bad_value_never_counts_less() -> None:
    text = VLLM.replace("4.0", "NaN")
    assert read_load(text.encode()) == {"a/b": Sample(awaiting=2, completed=9, input_tokens=100)}


@pytest.mark.parametrize("body", [b"", b"<html>", b"process_cpu_seconds_total 1\n", b"\xff\x00" * 100])
def test_page_without_load_must_tell_none(body: bytes) -> None:
    assert read_load(body) is None


def test_page_with_too_many_series_never_counts() -> None:
    lines = (f'dynamo_frontend_queued_requests{{model="m{number}"}} 1' for number in range(MAX_SERIES + 1))
    assert read_load("\n".join(lines).encode()) is None
