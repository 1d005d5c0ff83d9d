from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from isthmus.cli import debug
from isthmus.cli.debug import command
from isthmus.cli.differences import View
from isthmus.cli.dumps import Unreadable
from isthmus.debugport.port import DebugPort
from isthmus.errors import UserError
from isthmus.modelserving.dto import RoleInstanceDTO, ServingGroupDTO
from tests.support.dumps import Source, decision, group, serving


@contextmanager
def operator(source: Source) -> Iterator[int]:
    """A debug port in a thread with its own event loop; its port."""
    started, port, stop = threading.Event(), [0], list[Callable[[], object]]()

    async def serve() -> None:
        debug_port = DebugPort(0, dump=source, decisions=source)
        await debug_port.serve()
        port[0] = debug_port.addresses[0][1]
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(ended.set))
        started.set()
        await ended.wait()
        await debug_port.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait(10)
    try:
        yield port[0]
    finally:
        stop[0]()
        thread.join()


@contextmanager
def stranger(answer: bytes, *, silent: bool = False) -> Iterator[int]:
    """Something that takes one connection, reads, and answers with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def serve() -> None:
            with server.accept()[0] as client:
                client.recv(4096)
                if silent:
                    client.recv(1)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            thread.join()


def run(*args: str, **env: str) -> Result:
    return CliRunner(env={"ISTHMUS_DEBUG_PORT": None, **env}).invoke(command, args)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def http(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_the_cache_must_be_shown_as_a_tree() -> None:
    with operator(Source()) as port:
        result = run("cache", "--port", str(port))
        assert result.exit_code == 0, result.stderr
        assert "default/demo" in result.output
        assert (
            result.output.index("demo-0") < result.output.index("prefill-0") < result.output.index("demo-1")
        )


def test_the_port_may_come_from_the_environment_or_a_url() -> None:
    with operator(Source()) as port:
        assert run("cache", ISTHMUS_DEBUG_PORT=str(port)).exit_code == 0
        assert run("cache", "--url", f"http://127.0.0.1:{port}/").exit_code == 0
        assert run("cache", "--url", f"http://localhost:{port}").exit_code == 0


def test_json_must_be_the_dump_and_ascii() -> None:
    bad = "a\u009b2J\u202e"
    source = Source(servings=[serving("default/demo"), (f"x/{bad}", [])])
    with operator(source) as port:
        result = run("cache", "--port", str(port), "-o", "json")
        assert result.output.isascii()
        dump = json.loads(result.output)
        assert list(dump) == ["default/demo", f"x/{bad}"]
        assert dump["default/demo"]["demo-0"]["runningPods"] == ["demo-0-prefill-0-0", "demo-0-prefill-1-0"]


def test_namespace_and_name_must_be_passed_on() -> None:
    source = Source()
    with operator(source) as port:
        assert run("cache", "--port", str(port), "-n", "a b&c", "--name", "d").exit_code == 0
        assert run("decisions", "--port", str(port), "--name", "d").exit_code == 0
    assert source.asked == [("a b&c", "d"), (None, "d")]


def test_hostile_names_never_reach_the_terminal() -> None:
    bad = "[red]x[/]\x1b]0;owned\x07\u202e"
    instance = RoleInstanceDTO(bad, bad, bad, bad)
    hostile = ServingGroupDTO(bad, [bad], bad, bad, {bad: {bad: instance}})
    source = Source(servings=[(bad, [hostile])], kept=[decision(bad, bad, bad)])
    with operator(source) as port:
        for name in ("cache", "decisions"):
            result = run(name, "--port", str(port))
            assert result.exit_code == 0
            assert "[red]x[/]\\u{1b}]0;owned\\u{7}\\u{202e}" in result.output
            assert result.output.replace("\n", "").isprintable()


def test_decisions_must_be_shown_and_printed_as_json() -> None:
    source = Source(kept=[decision(outcome="failed: conflict"), decision()])
    with operator(source) as port:
        shown = run("decisions", "--port", str(port)).output
        assert "! failed: conflict" in shown
        assert "saw 2 groups" in shown
        dump = json.loads(run("decisions", "--port", str(port), "-o", "json").output)
        assert [each["outcome"] for each in dump["default/demo"]] == ["failed: conflict", "done"]


@pytest.mark.parametrize("name", ["cache", "decisions"])
def test_it_must_say_plainly_that_nothing_listens(name: str) -> None:
    port = free_port()
    result = run(name, "--port", str(port))
    assert result.exit_code == 1
    assert f"nothing listens on 127.0.0.1 and ::1 port {port}" in result.stderr
    assert f"--debug-port {port}" in result.stderr
    assert "kubectl port-forward" in result.stderr
    assert result.stdout == ""


def test_it_must_say_what_a_starting_operator_waits_for() -> None:
    with operator(Source(missing=("pods", "services"))) as port:
        result = run("cache", "--port", str(port))
        assert result.exit_code == 1
        assert "not complete yet: pods, services" in result.stderr


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x50", "does not speak HTTP"),
        (http("200 OK", b"<html>"), "its JSON has another shape"),
        (http("200 OK", b"[1]"), "its JSON has another shape"),
        (http("200 OK", b'{"a": {"b": {"name": 1}}}'), "its JSON has another shape"),
        (http("404 Not Found", b"no"), "it answers 404"),
        (http("404 Not Found", b'{"error": "no"}'), "it has no /debug/modelserving/cache"),
        (http("302 Found", b""), "it answers 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "broke off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", "broke off"),
        (b"", "broke off"),
        (http("500 Oops", b'{"error": "bad \\u001b[2J"}'), "answers 500: bad \\u{1b}[2J"),
        (http("503 Busy", b'{"error": "too many dumps"}'), "answers 503: too many dumps"),
    ],
)
def test_it_must_say_that_something_else_or_something_broken_listens(answer: bytes, says: str) -> None:
    with stranger(answer) as port:
        result = run("cache", "--port", str(port))
        assert result.exit_code == 1
        assert says in result.stderr
        assert "\x1b" not in result.stderr


def test_it_must_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.cli.dumps.TIMEOUT_S", 0.1)
    with stranger(b"", silent=True) as port:
        result = run("cache", "--port", str(port))
        assert result.exit_code == 1
        assert "does not answer" in result.stderr


def test_it_must_bound_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.cli.dumps.MAX_BYTES", 10)
    with operator(Source()) as port:
        assert "has no end" in run("cache", "--port", str(port)).stderr


@pytest.mark.parametrize(
    "args",
    [
        ("cache",),
        ("decisions",),
        ("diff",),
        ("cache", "--url", "https://127.0.0.1:1"),
        ("cache", "--url", "127.0.0.1:1"),
        ("cache", "--url", "http://127.0.0.1"),
        ("cache", "--url", "http://127.0.0.1:99999"),
        ("cache", "--url", "http://127.0.0.1:1/path"),
    ],
)
def test_wrong_usage_must_be_a_user_error(args: tuple[str, ...]) -> None:
    assert isinstance(run(*args).exception, UserError)


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_a_wrong_port_must_be_exit_code_2(port: str) -> None:
    assert run("cache", "--port", port).exit_code == 2
    assert run("cache", ISTHMUS_DEBUG_PORT=port).exit_code == 2


def test_exit_codes_must_reach_the_shell() -> None:
    program = [sys.executable, "-m", "isthmus.cli.main", "debug", "cache"]
    nothing = subprocess.run(
        [*program, "--port", str(free_port())], capture_output=True, text=True, check=False
    )
    assert (nothing.returncode, nothing.stderr.count("\n")) == (1, 2)
    usage = subprocess.run(program, capture_output=True, text=True, check=False, env={})
    assert usage.returncode == 2
    assert usage.stderr.startswith("error: which debug port?")


def test_an_unreachable_host_must_be_told() -> None:
    result = run("cache", "--url", "http://name.invalid:1")
    assert result.exit_code == 1
    assert "cannot reach name.invalid port 1" in result.stderr


class Readings:
    """Stands for the pause between two readings: does something, and is Ctrl-C in the end."""

    def __init__(self, *between: Callable[[], Any]) -> None:
        self.between = list(between)

    def __call__(self, seconds: float) -> None:
        if not self.between:
            raise KeyboardInterrupt
        self.between.pop(0)()


def test_watch_must_print_again_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(servings=[("default/one", [])])
    change = Readings(lambda: source.servings.append(("default/two", [])))
    monkeypatch.setattr(debug, "sleep", change)
    with operator(source) as port:
        result = run("cache", "--port", str(port), "--watch")
        assert result.exit_code == 0
        assert (result.output.count("default/one"), result.output.count("default/two")) == (2, 1)
        monkeypatch.setattr(debug, "sleep", Readings())
        lines = run("cache", "--port", str(port), "--watch", "-o", "json").output.splitlines()
        assert [list(json.loads(line)) for line in lines] == [["default/one", "default/two"]]


def test_watch_must_redraw_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setattr(debug, "_console", lambda: Console(force_terminal=True, width=200, _environ={}))
    source = Source(servings=[serving("default/one")])
    down = Readings(lambda: setattr(source, "missing", ("pods",)), lambda: None)
    monkeypatch.setattr(debug, "sleep", down)
    with operator(source) as port:
        result = run("cache", "--port", str(port), "--watch")
        assert result.exit_code == 0
        assert "\x1b[" in result.output, "the cursor moves"
        assert "not complete yet: pods" in " ".join(result.output.split())


def test_watch_must_outlast_an_operator_that_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(missing=("pods",))
    up = Readings(lambda: setattr(source, "missing", ()))
    monkeypatch.setattr(debug, "sleep", up)
    with operator(source) as port:
        result = run("cache", "--port", str(port), "--watch")
        assert result.exit_code == 0
        assert "not complete yet: pods" in result.stderr
        assert "default/demo" in result.stdout


def test_watch_must_end_where_nothing_listens_at_first() -> None:
    assert run("cache", "--port", str(free_port()), "--watch").exit_code == 1


@contextmanager
def api(monkeypatch: pytest.MonkeyPatch, *looks: Any) -> Iterator[list[tuple[Any, ...]]]:
    """`fetch_view` gives these one after another; what it was asked."""
    asked: list[tuple[Any, ...]] = []
    left = list(looks)

    async def fetch_view(*args: Any) -> Any:
        asked.append(args)
        look = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(look, Exception):
            raise look
        return look

    monkeypatch.setattr("isthmus.cli.compare.fetch_view", fetch_view)
    monkeypatch.setattr(debug, "sleep", lambda _: None)
    yield asked


def test_diff_must_be_quiet_and_0_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(servings=[("default/demo", [])])
    with operator(source) as port, api(monkeypatch, {"default/demo": {}}) as asked:
        result = run("diff", "--port", str(port), "--kubeconfig", "F", "-n", "default", "--name", "demo")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no differences\n")
        assert asked == [("F", "default", "demo")]
    assert source.asked == [("default", "demo")]


def test_diff_must_print_what_lasts_and_be_1(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(servings=[("default/demo", [group("demo-0")])])
    fleeting: View = {"x/soon": {}, "x/new": {}}
    lasting: View = {"x/new": {}, "default/demo": {}}
    with operator(source) as port, api(monkeypatch, fleeting, lasting):
        result = run("diff", "--port", str(port))
        assert result.exit_code == 1
        assert result.stdout == "ModelServing x/new is in the API, but not in the cache\n"


def test_diff_must_be_2_where_it_could_not_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("diff", "--port", str(free_port()), "--kubeconfig", "/nowhere").exit_code != 0
    with operator(Source()) as port, api(monkeypatch, Unreadable("cannot list", "a hint")):
        result = run("diff", "--port", str(port))
        assert (result.exit_code, result.stdout) == (2, "")
        assert "cannot list" in result.stderr
        assert "a hint" in result.stderr
    with api(monkeypatch, {}):
        assert run("diff", "--port", str(free_port())).exit_code == 2


def test_help_must_show_port_forward() -> None:
    assert "kubectl port-forward" in run("--help").output
