"""What a router may be told, and what is refused by its flag."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from isthmus.cli.router import command, read_options
from isthmus.errors import UserError
from isthmus.router.options import RouterOptions, read_grid
from isthmus.router.plan.grid import Defaults, retry_order
from isthmus.router.plan.model import Place
from isthmus.router.plan.selector import PriorityRule
from isthmus.router.pools import read_file

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "router"
POOLS = ["--pools-file", str(EXAMPLES / "pools.json")]
GRID = str(EXAMPLES / "grid-agg.json")


def options(*words: str, source: list[str] = POOLS) -> RouterOptions:
    """What the command makes of these flags."""
    context = command.make_context("router", [*source, *words], resilient_parsing=False)
    return read_options(context.params)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DYN_GLOBAL_ROUTER_CONFIG", "ISTHMUS_DISCOVERY_URL", "ISTHMUS_REGION", "ISTHMUS_ZONE"):
        monkeypatch.delenv(name, raising=False)


def test_router_without_flags_must_have_its_defaults() -> None:
    found = options()
    assert found.policy.policy == "load"
    assert (found.proxy.attempts, found.proxy.authorization, found.timeouts.connect_s) == (3, False, 5.0)
    assert (found.metrics, found.discovery, found.listen[1]) == (None, None, 8000)


@pytest.mark.covers("PW-16")
@pytest.mark.parametrize(
    ("words", "source", "text"),
    [
        ([], [], "--discovery and --pools-file"),
        (["--discovery", "http://d"], POOLS, "--discovery and --pools-file"),
        (["--discovery", "ftp://d"], [], "--discovery"),
        (["--discovery-token-file", "t"], POOLS, "--discovery-token-file"),
        (["--discovery-ca-file", "t"], POOLS, "--discovery-token-file and --discovery-ca-file"),
        (["--policy", "grid"], POOLS, "--config"),
        (["--config", GRID], POOLS, "--config is for --policy grid"),
        (["--policy", "locality"], POOLS, "--region or --zone"),
        (["--policy", "grid", "--config", "/none"], POOLS, "--config: there is no file /none"),
        (["--policy", "grid", "--config", POOLS[1]], POOLS, "prefill_pool_dynamo_namespaces"),
        (["--breaker-open", "5", "--breaker-open-max", "4"], POOLS, "--breaker-open-max"),
        (["--weight", "east"], POOLS, "--weight"),
        (["--weight", "=2"], POOLS, "--weight"),
        (["--weight", "east=0"], POOLS, "--weight"),
        (["--weight", "east=nan"], POOLS, "--weight"),
        (["--weight", "east=-1"], POOLS, "--weight"),
        (["--weight", "east=1e6"], POOLS, "--weight"),
        (["--weight", "east=1", "--weight", "east=2"], POOLS, "twice"),
        (["--priority-override", "1=a"], POOLS, "--priority-override"),
        (["--priority-override", "1:2"], POOLS, "--priority-override"),
        (["--priority-override", "1:2="], POOLS, "--priority-override"),
        (["--priority-override", "2:1=a"], POOLS, "--priority-override"),
        (["--priority-override", "x:1=a"], POOLS, "--priority-override"),
        (["--listen", ""], POOLS, "--listen"),
        (["--metrics-listen", "x"], POOLS, "--metrics-listen"),
    ],
)
def test_flags_that_contradict_one_another_must_be_refused_by_name(
    words: list[str], source: list[str], text: str
) -> None:
    with pytest.raises(UserError) as caught:
        options(*words, source=source)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--max-load-age", "nan"),
        ("--max-load-age", "0"),
        ("--spill-at", "0"),
        ("--retry-share", "1.01"),
        ("--retry-share", "nan"),
        ("--attempts", "0"),
        ("--connect-timeout", "inf"),
        ("--default-ttft-target-ms", "-1"),
        ("--default-itl-target-ms", "inf"),
        ("--max-concurrency", "-1"),
        ("--policy", "best"),
    ],
)
def test_number_out_of_bounds_must_be_refused_by_name(flag: str, value: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        options(flag, value)
    assert flag in str(caught.value.format_message())


@pytest.mark.covers("GR-1")
@pytest.mark.parametrize("suffix", ["", "-ms"])
def test_flags_of_upstream_must_win_over_its_variables(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYN_GLOBAL_ROUTER_CONFIG", GRID)
    monkeypatch.setenv("DYN_GLOBAL_ROUTER_DEFAULT_TTFT_TARGET_MS", "7")
    monkeypatch.setenv("DYN_GLOBAL_ROUTER_DEFAULT_ITL_TARGET_MS", "8")
    found = options("--policy", "grid")
    assert found.policy.grid is not None
    assert len(found.policy.grid.pools) == 3
    assert found.policy.defaults == Defaults(7.0, 8.0)
    targets = [f"--default-ttft-target{suffix}", "0", f"--default-itl-target{suffix}", "3"]
    disagg = str(EXAMPLES / "grid-disagg.json")
    found = options("--policy", "grid", "--config", disagg, *targets)
    assert found.policy.grid is not None
    assert found.policy.grid.pools == ("serving-chat-small", "serving-chat-large")
    assert found.policy.defaults == Defaults(0.0, 3.0)


def test_locality_must_be_told_where_the_router_is() -> None:
    words = ["--policy", "locality", "--region", "us-east", "--zone", "us-east-1a", "--spill-at", "0.5"]
    found = options(*words, "--weight", "east=2", "--priority-override", "-5:0=west/serving/chat-large")
    assert found.policy.place == Place("us-east", "us-east-1a")
    assert (found.policy.spill_at, found.policy.weights) == (0.5, {"east": 2.0})
    assert found.policy.priorities == (PriorityRule(-5, 0, "west/serving/chat-large"),)


def test_discovery_must_have_its_files() -> None:
    found = options(
        "--discovery", "https://d:1", "--discovery-token-file", "t", "--discovery-ca-file", "c", source=[]
    )
    assert found.discovery is not None
    assert (found.discovery.url, found.discovery.token, found.discovery.ca) == (
        "https://d:1",
        Path("t"),
        Path("c"),
    )


@pytest.mark.covers("GR-10")
def test_grid_that_cannot_be_read_must_name_the_flag(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--config: .*: Is a directory"):
        read_grid(tmp_path)
    big = tmp_path / "big"
    big.write_bytes(b" " * ((4 << 20) + 1))
    with pytest.raises(UserError, match="longer than"):
        read_grid(big)


@pytest.mark.covers("GR-6", "GR-7", "GR-16")
def test_examples_must_be_files_that_the_router_takes() -> None:
    agg, disagg = read_grid(Path(GRID)), read_grid(EXAMPLES / "grid-disagg.json")
    assert (agg.warnings, disagg.warnings) == ((), ())
    assert retry_order(agg.grid, 2) == (2, 1, 0)
    assert disagg.decode is not None
    known = {
        name for each in read_file((EXAMPLES / "pools.json").read_bytes()) for name in each.runtime_namespaces
    }
    assert set(disagg.grid.pools) == known
