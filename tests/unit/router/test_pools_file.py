"""Pools from a file, and what keeps a bad one from doing harm."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from isthmus.api.pools import PoolKey, PoolList
from isthmus.errors import UserError
from isthmus.router import pools
from isthmus.router.plan.directory import Directory
from isthmus.router.pools import Filed, read_file
from tests.support.clock import FakeClock
from tests.support.poolfacts import pool

POOL: dict[str, Any] = {
    "cluster_id": "east",
    "namespace": "serving",
    "name": "chat",
    "frontend_urls": ["http://10.0.0.9:8000"],
    "models": [{"id": "example/tiny"}],
}


def written(path: Path, *found: Any) -> Path:
    path.write_text(json.dumps({"pools": found}))
    return path


def filed(path: Path) -> tuple[Filed, Directory, FakeClock]:
    directory, clock = Directory(), FakeClock()
    return Filed(path, directory, clock, lambda: None), directory, clock


@pytest.mark.covers("PW-16")
def test_file_must_give_its_pools_with_the_ids_that_they_have_everywhere() -> None:
    (found,) = read_file(json.dumps({"pools": [POOL]}).encode())
    assert found.pool_id == PoolKey("east", "serving", "chat").pool_id
    assert (found.source, found.frontend_urls, found.models[0].ready) == (
        "file",
        ("http://10.0.0.9:8000",),
        True,
    )


@pytest.mark.covers("PW-16", "PW-7")
def test_list_of_a_discovery_service_must_be_a_file() -> None:
    given = PoolList(version="v", complete=True, mode="mcs", pools=(pool("a"), pool("b")))
    assert [each.name for each in read_file(msgspec.json.encode(given))] == ["a", "b"]


@pytest.mark.covers("PW-16")
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"{", "--pools-file"),
        (b"[]", "--pools-file"),
        (b"{}", "pools"),
        (b"\xff", "--pools-file"),
        (b"[" * 100_000, "--pools-file"),
        (json.dumps({"pools": [], "pool": []}).encode(), "pool"),
        (json.dumps({"pools": [POOL | {"frontend_url": "http://x"}]}).encode(), "frontend_url"),
        (json.dumps({"pools": [POOL | {"name": "a.b"}]}).encode(), "pools[0].name"),
        (json.dumps({"pools": [POOL, POOL]}).encode(), "pools[1]: east/serving/chat is there twice"),
        (
            json.dumps({"pools": [POOL | {"frontend_urls": ["http://u:p@x"]}]}).encode(),
            "pools[0].frontend_urls[0]",
        ),
        (json.dumps({"pools": [POOL | {"pool_id": "other"}]}).encode(), "pools[0].pool_id"),
    ],
)
def test_bad_file_must_be_refused_with_its_field(data: bytes, text: str) -> None:
    with pytest.raises(UserError) as caught:
        read_file(data)
    assert text in str(caught.value)


def test_file_that_is_not_there_or_too_long_must_be_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _, _ = filed(tmp_path / "none")
    with pytest.raises(UserError, match="No such file"):
        source.read()
    monkeypatch.setattr(pools, "MAX_FILE_BYTES", 20)
    source, _, _ = filed(written(tmp_path / "file", POOL))
    with pytest.raises(UserError, match="longer than 20"):
        source.read()


class Looking:
    """A file that is followed on a clock of the test's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source, self.directory, self.clock = filed(path)

    @property
    def known(self) -> list[str]:
        return [each.name for each in self.directory.pools]

    async def look(self) -> None:
        """Let a second pass."""
        await self.clock.advance(1.0)


@pytest.mark.covers("PW-16", "PW-8")
async def test_file_must_be_followed_and_a_bad_one_must_keep_the_last_good_one(tmp_path: Path) -> None:
    looking = Looking(written(tmp_path / "pools.json", POOL))
    looking.source.read()
    heard = looking.source.heard
    async with asyncio.TaskGroup() as group:
        task = group.create_task(looking.source.run())
        await asyncio.sleep(0)
        written(looking.path, POOL, POOL | {"name": "other"})
        await looking.look()
        assert looking.known == ["chat", "other"]
        looking.path.write_text("{")
        await looking.look()
        assert looking.known == ["chat", "other"]
        assert "--pools-file" in heard.problem
        await looking.look()
        assert "--pools-file" in heard.problem
        assert heard.age_s() == 0
        looking.path.unlink()
        await looking.look()
        assert "No such file" in heard.problem
        await looking.look()
        assert heard.age_s() == 2
        assert looking.known == ["chat", "other"]
        written(looking.path)
        await looking.look()
        assert looking.known == []
        assert heard.problem == ""
        task.cancel()


async def test_file_that_did_not_change_must_not_be_read_again(tmp_path: Path) -> None:
    looking = Looking(written(tmp_path / "pools.json", POOL))
    looking.source.read()
    looking.directory.replace([], complete=True, now=0.0)
    looking.source.read()
    assert looking.known == []
    looking.path.touch()
    looking.source.read()
    assert looking.known == ["chat"]
