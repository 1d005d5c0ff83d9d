from __future__ import annotations

import pytest

from isthmus.errors import IsthmusError
from isthmus.kube import errors, retry

UNSENT = errors.Unreachable("x", sent=False)
SENT = errors.Unreachable("x")
BUSY = errors.Throttled(429)
BROKEN = errors.ServerError(500)


@pytest.mark.parametrize(
    ("error", "repeatable", "once_only"),
    [
        (UNSENT, True, True),
        (SENT, True, False),
        (BUSY, True, True),
        (BROKEN, True, False),
        (errors.TooLargeResourceVersion(504), False, False),
        (errors.Conflict(409), False, False),
        (errors.Expired(410), False, False),
        (errors.NotFound(404), False, False),
        (errors.Forbidden(403), False, False),
        (errors.Invalid(422), False, False),
        (errors.WriteRefused("x"), False, False),
    ],
)
def test_only_what_can_do_no_harm_may_be_sent_again(
    error: IsthmusError, repeatable: bool, once_only: bool
) -> None:
    for verb_repeatable, expected in ((True, repeatable), (False, once_only)):
        delay = retry.delay_after(error, failures=1, repeatable=verb_repeatable, renewable=False, jitter=0)
        assert (delay is not None) is expected


def test_unauthorized_must_be_tried_again_only_with_other_credentials() -> None:
    error = errors.Unauthorized(401)
    assert retry.delay_after(error, failures=1, repeatable=False, renewable=False, jitter=0) is None
    assert retry.delay_after(error, failures=1, repeatable=False, renewable=True, jitter=0) is not None


@pytest.mark.parametrize(
    ("failures", "low", "high"), [(1, 0.05, 0.1), (2, 0.1, 0.2), (7, 2.5, 5), (10**6, 2.5, 5)]
)
def test_wait_must_double_up_to_its_cap_with_half_of_it_chance(
    failures: int, low: float, high: float
) -> None:
    assert retry.delay_after(BUSY, failures=failures, repeatable=True, renewable=False, jitter=0) == low
    assert retry.delay_after(BUSY, failures=failures, repeatable=True, renewable=False, jitter=1) == high


def test_retry_after_must_be_the_least_wait() -> None:
    error = errors.Throttled(429, retry_after_s=3)
    assert retry.delay_after(error, failures=1, repeatable=True, renewable=False, jitter=0) == 3
    assert retry.delay_after(error, failures=1, repeatable=True, renewable=False, jitter=1) == 3.75
    error = errors.Throttled(429, retry_after_s=0)
    assert retry.delay_after(error, failures=1, repeatable=True, renewable=False, jitter=0) == 0.05
