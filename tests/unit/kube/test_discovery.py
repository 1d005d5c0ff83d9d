"""Which APIs a server has: absent, present and unknown are three answers."""

from __future__ import annotations

import pytest

from isthmus.api.meta import Object, Resource
from isthmus.kube import errors
from isthmus.kube.discovery import GOOD_S, Discovery
from tests.support.clock import FakeClock

GROUPS = b'{"groups": [{"name": "example.com", "versions": [{"groupVersion": "example.com/v1"}]}]}'
THINGS = b'{"resources": [{"name": "things"}, {"name": "things/status"}]}'


def resource(group: str = "example.com", version: str = "v1", plural: str = "things") -> Resource[Object]:
    return Resource(group=group, version=version, plural=plural, kind="Thing", type=Object)


class Server:
    def __init__(self, answers: dict[str, bytes | Exception]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.clock = FakeClock()
        self.discovery = Discovery(self.get, self.clock)

    async def get(self, path: str) -> bytes:
        self.asked.append(path)
        answer = self.answers[path]
        if isinstance(answer, Exception):
            raise answer
        return answer


def not_found() -> errors.NotFound:
    return errors.NotFound(404, "NotFound", "no such path")


async def test_absent_group_or_version_must_be_told_without_asking_for_it() -> None:
    server = Server({"/apis": GROUPS})
    assert not await server.discovery.served(resource("other.com"))
    assert not await server.discovery.served(resource(version="v2"))
    assert server.asked == ["/apis"]


async def test_resource_must_be_looked_for_in_its_version() -> None:
    server = Server({"/apis": GROUPS, "/apis/example.com/v1": THINGS})
    assert await server.discovery.served(resource())
    assert not await server.discovery.served(resource(plural="thing"))


async def test_core_group_must_have_no_group() -> None:
    server = Server({"/api/v1": THINGS})
    assert await server.discovery.served(resource(group=""))


async def test_version_that_goes_between_the_questions_must_be_absent() -> None:
    server = Server({"/apis": GROUPS, "/apis/example.com/v1": not_found()})
    assert not await server.discovery.served(resource())


async def test_list_of_groups_must_be_asked_for_again_when_it_is_old() -> None:
    server = Server({"/apis": b'{"groups": []}', "/apis/example.com/v1": THINGS})
    assert not await server.discovery.served(resource())
    server.answers["/apis"] = GROUPS
    await server.clock.advance(GOOD_S)
    assert await server.discovery.served(resource())


@pytest.mark.parametrize("path", ["/apis", "/apis/example.com/v1"])
async def test_failure_must_not_pass_for_absence(path: str) -> None:
    server = Server({"/apis": GROUPS, "/apis/example.com/v1": THINGS})
    server.answers[path] = errors.ServerError(503, "ServiceUnavailable", "unwell")
    with pytest.raises(errors.ServerError):
        await server.discovery.served(resource())
    server.answers[path] = b"<html>"
    await server.clock.advance(GOOD_S)
    with pytest.raises(errors.WrongAnswer, match=path):
        await server.discovery.served(resource())
