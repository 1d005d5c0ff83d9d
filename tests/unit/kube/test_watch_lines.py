from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.api.meta import Frozen, Object
from isthmus.kube import errors, watch_lines
from isthmus.kube.watch_state import (
    Bookmarked,
    Failed,
    Failure,
    Garbled,
    Input,
    Removed,
    Skipped,
    Unknown,
    Upserted,
)


class Spec(Frozen, frozen=True, kw_only=True):
    replicas: int = 1


class Thing(Object, frozen=True, kw_only=True):
    spec: Spec = Spec()


read = watch_lines.reader(Thing)
RAW_THING = {"kind": "Thing", "metadata": {"name": "a", "resourceVersion": "7"}, "spec": {"replicas": 2}}
GONE = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}


def line(type_: str, raw_object: Any) -> bytes:
    return json.dumps({"type": type_, "object": raw_object}).encode()


@pytest.mark.parametrize(
    ("type_", "kind"), [("ADDED", Upserted), ("MODIFIED", Upserted), ("DELETED", Removed)]
)
def test_change_must_carry_the_decoded_object(type_: str, kind: type[Upserted | Removed]) -> None:
    event = read(line(type_, RAW_THING))
    assert isinstance(event, kind)
    assert isinstance(event.object, Thing)
    assert event.object.spec.replicas == 2


@pytest.mark.covers("R21")
@pytest.mark.parametrize(
    "body",
    [
        line("ERROR", GONE),
        line("ERROR", GONE | {"reason": "Gone"}),
        line("ERROR", {"kind": "Status", "reason": "Expired"}),
        line("ERROR", {"kind": "Status", "code": 410}),
        json.dumps(GONE).encode(),
        json.dumps(GONE, indent=1).replace("\n", " ").encode(),
    ],
)
def test_410_must_be_known_in_every_form(body: bytes) -> None:
    assert read(body) == Failed(Failure.EXPIRED)


@pytest.mark.parametrize(
    ("body", "event"),
    [
        (
            line("BOOKMARK", {"kind": "Thing", "metadata": {"resourceVersion": "9"}, "spec": {}}),
            Bookmarked("9"),
        ),
        (line("BOOKMARK", RAW_THING), Bookmarked("7")),
        (
            line("ERROR", {"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 3}}),
            Failed(Failure.THROTTLED, 3),
        ),
        (line("ERROR", {"kind": "Status", "code": 500}), Failed(Failure.SERVER)),
        (line("ERROR", {"what": "ever"}), Failed(Failure.SERVER)),
        (
            line("ERROR", {"kind": "Status", "code": 504, "message": "Too large resource version: 5"}),
            Failed(Failure.TOO_LARGE),
        ),
        (line("TOMORROW", RAW_THING), Unknown("TOMORROW")),
    ],
)
def test_other_events_must_be_told_apart(body: bytes, event: Input) -> None:
    assert read(body) == event


def test_object_that_does_not_fit_must_be_skipped_by_name() -> None:
    event = read(line("MODIFIED", RAW_THING | {"spec": {"replicas": "many"}}))
    assert isinstance(event, Skipped)
    assert (event.resource_version, event.undecodable.name) == ("7", "a")
    assert "$.object.spec.replicas" in event.undecodable.error


@pytest.mark.parametrize(
    "body",
    [
        b"<html>busy</html>",
        b"{}",
        b"[]",
        b"null",
        b'{"kind":"Pod"}',
        b"\xff\xfe",
        b'{"a":' * 100_000,
        line("BOOKMARK", 5),
        line("ADDED", {"metadata": {}}),
        line("ADDED", None),
        line("ADDED", RAW_THING)[:-2],
    ],
)
def test_rubbish_must_be_called_so(body: bytes) -> None:
    event = read(body)
    assert isinstance(event, Garbled)
    assert len(event.text) <= 200


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (errors.Expired(410), Failed(Failure.EXPIRED)),
        (errors.Throttled(429, retry_after_s=2), Failed(Failure.THROTTLED, 2)),
        (errors.NotFound(404), Failed(Failure.NOT_FOUND)),
        (errors.Forbidden(403), Failed(Failure.DENIED)),
        (errors.Unauthorized(401), Failed(Failure.DENIED)),
        (errors.Unreachable("x"), Failed(Failure.LOST)),
        (errors.ServerError(503), Failed(Failure.SERVER)),
        (errors.TooLargeResourceVersion(504), Failed(Failure.TOO_LARGE)),
        (errors.WrongAnswer("x"), Failed(Failure.OTHER)),
        (errors.Invalid(400), Failed(Failure.OTHER)),
    ],
)
def test_each_error_must_have_its_meaning_for_a_watch(error: errors.ApiError, failed: Failed) -> None:
    assert watch_lines.failure_of(error) == failed
