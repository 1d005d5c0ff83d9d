from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.api.meta import Frozen, Object
from isthmus.kube import answers, errors


class Spec(Frozen, frozen=True, kw_only=True):
    replicas: int = 1


class Thing(Object, frozen=True, kw_only=True):
    spec: Spec = Spec()


def status(code: int, reason: str = "", message: str = "m", **details: Any) -> bytes:
    return json.dumps(
        {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    ).encode()


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (400, status(400, "BadRequest"), errors.Invalid),
        (401, status(401, "Unauthorized"), errors.Unauthorized),
        (403, status(403, "Forbidden"), errors.Forbidden),
        (404, status(404, "NotFound"), errors.NotFound),
        (404, b"404 page not found\n", errors.NotFound),
        (405, status(405, "MethodNotAllowed"), errors.ApiError),
        (409, status(409, "AlreadyExists"), errors.AlreadyExists),
        (409, status(409, "Conflict"), errors.Conflict),
        (410, status(410, "Expired"), errors.Expired),
        (410, b"", errors.Expired),
        (400, status(400, "Expired"), errors.Expired),
        (422, status(422, "Invalid"), errors.Invalid),
        (429, status(429, "TooManyRequests"), errors.Throttled),
        (500, status(500, "InternalError"), errors.ServerError),
        (503, b"<html>", errors.ServerError),
        (504, status(504, "Timeout"), errors.ServerError),
        (
            504,
            status(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge"}]),
            errors.TooLargeResourceVersion,
        ),
        (
            504,
            status(504, "Timeout", "Too large resource version: 9, current: 1"),
            errors.TooLargeResourceVersion,
        ),
        (302, b"", errors.ApiError),
    ],
)
def test_each_answer_must_become_its_one_error(code: int, body: bytes, kind: type) -> None:
    error = answers.error_from(code, body, "GET /x")
    assert type(error) is kind
    assert (error.status, error.what) == (code, "GET /x")


def test_error_must_carry_what_the_status_says() -> None:
    cause = {"field": "spec.replicas", "reason": "FieldValueInvalid", "message": "too big"}
    error = answers.error_from(
        422, status(422, "Invalid", "no", causes=[cause], retryAfterSeconds=7), "POST /x"
    )
    assert error.causes == (("spec.replicas", "FieldValueInvalid", "too big"),)
    assert error.retry_after_s == 7.0
    assert "POST /x: 422 Invalid: no" in str(error)


def test_hostile_text_must_be_cut() -> None:
    assert len(str(answers.error_from(500, b"x" * 100_000, "GET /x"))) < 1100
    assert len(str(answers.error_from(500, status(500, "", "y" * 100_000), "GET /x"))) < 1100


NOW = 1_790_000_000.0  # Mon, 21 Sep 2026 14:13:20 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0),
        (" 0 ", 0.0),
        ("Mon, 21 Sep 2026 14:13:30 GMT", 10.0),
        ("Mon, 21 Sep 2026 14:13:10 GMT", 0.0),
        ("Mon, 21 Sep 2026 14:13:30 -0000", 10.0),
        ("", None),
        ("-1", None),
        ("soon", None),
        ("\uff11", None),
    ],
)
def test_retry_after_must_be_read_as_seconds_or_date(value: str, seconds: float | None) -> None:
    assert answers.parse_retry_after(value, NOW) == seconds


def test_page_must_keep_only_what_the_type_names() -> None:
    raw_items = [{"metadata": {"name": "a", "managedFields": [{}]}, "spec": {"replicas": 3, "x": 1}}]
    body = json.dumps({"metadata": {"resourceVersion": "5", "continue": "c"}, "items": raw_items}).encode()
    page = answers.read_page(body, Thing, "GET /x")
    assert (page.items[0].spec.replicas, page.resource_version, page.continue_) == (3, "5", "c")
    assert page.undecodable == ()


def test_empty_list_may_say_null() -> None:
    assert answers.read_page(b'{"metadata":{"resourceVersion":"5"},"items":null}', Thing, "").items == []


def test_object_that_does_not_fit_never_hides_the_others() -> None:
    raw_items: list[Any] = [
        {"metadata": {"name": "a"}},
        {"metadata": {"name": "b", "namespace": "n"}, "spec": {"replicas": "many"}},
        {"metadata": 5},
        {"metadata": {"name": "d"}},
    ]
    body = json.dumps({"metadata": {"resourceVersion": "5", "continue": "c"}, "items": raw_items}).encode()
    page = answers.read_page(body, Thing, "GET /x")
    assert [item.metadata.name for item in page.items] == ["a", "d"]
    assert [(each.namespace, each.name) for each in page.undecodable] == [("n", "b"), ("", "")]
    assert "$.spec.replicas" in page.undecodable[0].error
    assert (page.resource_version, page.continue_) == ("5", "c")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"<html>", b'{"items":[]}', b'{"metadata":{},"items":{}}', b"[]"]
)
def test_body_that_is_no_list_must_be_refused(body: bytes) -> None:
    with pytest.raises(errors.WrongAnswer, match="GET /x"):
        answers.read_page(body, Thing, "GET /x")


def test_written_must_name_what_is_stored() -> None:
    raw_meta = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"}
    body = json.dumps({"kind": "PartialObjectMetadata", "metadata": raw_meta}).encode()
    assert answers.read_written(body, "") == answers.Written("a", "n", "u", "7")
    for wrong in (b"{}", b'{"kind":"Status","status":"Success"}', b"{"):
        with pytest.raises(errors.WrongAnswer):
            answers.read_written(wrong, "")


def test_object_that_does_not_fit_must_be_refused() -> None:
    with pytest.raises(errors.WrongAnswer, match="GET /x"):
        answers.read_object(b'{"metadata":{}}', Thing, "GET /x")
