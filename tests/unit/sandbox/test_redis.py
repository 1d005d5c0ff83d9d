"""Where the Redis server for tests is found, and what is said where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from isthmus.errors import UserError
from isthmus.sandbox import places, redis


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a machine without a server."""
    monkeypatch.setattr(places, "cache_home", lambda: tmp_path / "cache")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    return tmp_path / "cache"


def test_server_that_is_not_there_must_be_told_with_what_gets_it() -> None:
    with pytest.raises(UserError) as caught:
        redis.find()
    assert "make redis" in caught.value.hint


def test_server_of_the_machine_must_be_taken_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: f"/usr/bin/{name}")
    assert redis.ensure() == redis.Server(Path("/usr/bin/valkey-server"), None)


def test_packages_must_be_unpacked_whole_or_not_at_all(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], folder: Path) -> None:
        if command[0] == "dpkg":
            if broken:
                raise subprocess.CalledProcessError(1, command, stderr=b"dpkg: it is cut off\n")
            program = Path(command[-1]) / "usr/bin/redis-server"
            program.parent.mkdir(parents=True)
            program.touch()
        else:
            (folder / "redis-server_7_amd64.deb").touch()

    monkeypatch.setattr(redis, "_run", run)
    broken = True
    with pytest.raises(UserError, match="it is cut off"):
        redis.ensure()
    assert list(cache.iterdir()) == []
    broken = False
    server = redis.ensure()
    assert server.program.is_relative_to(cache)
    assert redis.find() == server
    assert "LD_LIBRARY_PATH" in server.environ(os.environ)


def test_machine_without_the_tools_must_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> None:
        raise FileNotFoundError(2, "No such file or directory", "apt-get")

    monkeypatch.setattr(redis, "_run", run)
    with pytest.raises(UserError, match="apt-get") as caught:
        redis.ensure()
    assert "redis-server" in caught.value.hint
