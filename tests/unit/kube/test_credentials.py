from __future__ import annotations

import os
from pathlib import Path

import pytest

from isthmus.kube.credentials import REREAD_S, Fixed, TokenFile
from isthmus.kube.errors import Unreachable
from tests.support.clock import FakeClock


def swap(folder: Path, token: str) -> None:
    """What a kubelet does: a new folder of data, and one symlink moved to it in one step."""
    data = folder / f"..data_{token}"
    data.mkdir(parents=True)
    (data / "token").write_text(token + "\n")
    (folder / "..tmp").symlink_to(data.name)
    os.replace(folder / "..tmp", folder / "..data")
    if not (folder / "token").is_symlink():
        (folder / "token").symlink_to("..data/token")


@pytest.mark.covers("R24")
async def test_token_file_must_be_read_again_within_a_minute(tmp_path: Path) -> None:
    clock = FakeClock()
    swap(tmp_path, "one")
    tokens = TokenFile(tmp_path / "token")
    assert tokens.cached(clock.monotonic()) is None
    assert await tokens.refresh(clock) == "Bearer one"
    swap(tmp_path, "two")
    assert tokens.cached(clock.monotonic()) == "Bearer one"
    await clock.advance(REREAD_S)
    assert tokens.cached(clock.monotonic()) is None
    assert await tokens.refresh(clock) == "Bearer two"
    assert REREAD_S <= 60


@pytest.mark.covers("R24")
async def test_refused_token_must_be_read_again_at_once(tmp_path: Path) -> None:
    clock = FakeClock()
    swap(tmp_path, "one")
    tokens = TokenFile(tmp_path / "token")
    await tokens.refresh(clock)
    swap(tmp_path, "two")
    tokens.renew()
    assert tokens.cached(clock.monotonic()) is None
    assert await tokens.refresh(clock) == "Bearer two"
    assert tokens.renewable


async def test_vanished_token_file_must_leave_the_last_token_in_use(tmp_path: Path) -> None:
    clock = FakeClock()
    path = tmp_path / "token"
    path.write_text("one")
    tokens = TokenFile(path)
    await tokens.refresh(clock)
    path.write_text("")
    assert await tokens.refresh(clock) == "Bearer one"
    path.unlink()
    assert await tokens.refresh(clock) == "Bearer one"


@pytest.mark.parametrize("content", [None, "", b"\xff\xfe"])
async def test_token_file_that_never_held_one_must_be_named(
    tmp_path: Path, content: str | bytes | None
) -> None:
    path = tmp_path / "token"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.write_text(content)
    with pytest.raises(Unreachable, match="token") as caught:
        await TokenFile(path).refresh(FakeClock())
    assert not caught.value.sent


async def test_fixed_credentials_must_never_change() -> None:
    fixed = Fixed.token("t")
    fixed.renew()
    assert fixed.cached(1e9) == await fixed.refresh(FakeClock()) == "Bearer t"
    assert not fixed.renewable
    assert fixed.certificate() is None
