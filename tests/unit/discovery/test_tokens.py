"""Bearer tokens: what each is good for, which files are refused, and that a changed file counts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from isthmus.discovery.tokens import MAX_BYTES, PERIOD_S, Tokens
from isthmus.errors import UserError
from tests.support.clock import FakeClock, settle

FILE = """\
# relays
token-east east
token-two east,west

token-read read
token-all *
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(FILE)
    return path


@pytest.mark.covers("DS-4")
@pytest.mark.parametrize(
    ("authorization", "cluster", "status"),
    [
        ("", None, 401),
        ("Bearer", None, 401),
        ("Bearer nonsense", None, 401),
        ("Basic token-all", None, 401),
        ("Bearer token-al\udcff", None, 401),
        ("Bearer token-east", None, 0),
        ("bearer  token-east", None, 0),
        ("Bearer token-east", "east", 0),
        ("Bearer token-east", "west", 403),
        ("Bearer token-two", "west", 0),
        ("Bearer token-read", None, 0),
        ("Bearer token-read", "east", 403),
        ("Bearer token-read", "read", 403),
        ("Bearer token-all", "read", 0),
        ("Bearer token-all", "anything", 0),
        ("Bearer #", None, 401),
    ],
)
async def test_token_must_be_good_for_its_scope_and_no_more(
    path: Path, authorization: str, cluster: str | None, status: int
) -> None:
    assert Tokens(path, FakeClock()).refused(authorization, cluster) == status


async def test_everybody_may_do_everything_without_a_file() -> None:
    assert Tokens(None, FakeClock()).refused("", "east") == 0


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"short x\n", "line 1"),
        (b"long-enough\n", "line 1"),
        (b"\n\nlong-enough ,\n", "line 3"),
        (b"\xff\xfe", "UTF-8"),
        (b"#" * (MAX_BYTES + 1), "longer"),
    ],
)
async def test_file_that_cannot_be_used_must_be_refused(tmp_path: Path, text: bytes, named: str) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(text)
    with pytest.raises(UserError, match=named):
        Tokens(path, FakeClock())
    with pytest.raises(UserError, match="--tokens-file"):
        Tokens(tmp_path / "nowhere", FakeClock())


async def test_changed_file_must_count_and_a_bad_one_keep_the_last_good_one(path: Path) -> None:
    clock = FakeClock()
    tokens = Tokens(path, clock)
    task = asyncio.get_running_loop().create_task(tokens.run())
    await settle()
    for text, status in (("other-token *\n", 401), ("broken\n", 401), (FILE, 0)):
        path.with_name("next").write_text(text)
        path.with_name("next").replace(path)
        await clock.advance(PERIOD_S)
        assert tokens.refused("Bearer token-east", "east") == status
    os.unlink(path)
    await clock.advance(PERIOD_S)
    assert (tokens.refused("Bearer token-east", "east"), tokens.failed) == (0, 2)
    task.cancel()
