"""Break one guard at a time and see which test fails: `make mutate`.

A guard is a condition of an `if`, a filter of a comprehension, one operand of an `and` or `or`, or the edge
of a comparison, in the modules that decide. Each is named by its file, its function and its text. The tree is
copied to a temporary folder; each guard is broken in a process of its own, by compiling the changed module as
it is imported, under limits of time and memory, since a planner that is broken may never end. The narrowest
tests come first. Writes docs/mutation/ROOM.md; tests/mutation/survivors.toml says why a guard that no test
misses is right. Exits with 1 where one survives without a reason.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.machinery
import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
SURVIVORS: Final = "tests/mutation/survivors.toml"
TIME_S: Final = 240
MEMORY_BYTES: Final = 3 << 30
MAX_TEXT: Final = 90


class Room(NamedTuple):
    """What is broken, and the tests that should notice, narrowest first."""

    files: tuple[str, ...]
    tests: tuple[str, ...]
    leave: tuple[str, ...] = ()


ROOMS: Final = {
    "modelserving": Room(
        (
            "src/isthmus/modelserving/plan/*.py",
            "src/isthmus/modelserving/store.py",
            "src/isthmus/modelserving/view.py",
        ),
        (
            "tests/unit/modelserving/plan",
            "tests/unit/modelserving",
        ),
        leave=("foresee.py", "explain.py", "causes.py", "plugins.py"),
    ),
    "poolrelay": Room(
        ("src/isthmus/poolrelay/*.py", "src/isthmus/poolrelay/plan/*.py"),
        ("tests/unit/poolrelay/plan", "tests/unit/poolrelay"),
    ),
    "graph": Room(
        ("src/isthmus/graph/plan/*.py",),
        ("tests/unit/graph/plan", "tests/unit/graph"),
    ),
    "router": Room(
        ("src/isthmus/router/plan/*.py",),
        ("tests/unit/router/plan", "tests/property/router"),
    ),
    "retries": Room(
        ("src/isthmus/router/proxy.py", "src/isthmus/router/upstream.py"),
        ("tests/services/test_router_retries.py", "tests/services/test_router.py"),
    ),
    "discovery": Room(
        ("src/isthmus/discovery/plan/*.py",),
        ("tests/unit/discovery/plan", "tests/unit/discovery", "tests/property/discovery"),
    ),
}

_EDGES: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}


class Guard(NamedTuple):
    """One thing to break: the `number`th of its kind in `path`, as `guards` walks it."""

    path: str
    name: str
    number: int


class Outcome(NamedTuple):
    """`test` is the first that failed, or "" where none did."""

    guard: Guard
    test: str
    took_s: float


def _const(value: bool, at: ast.expr) -> ast.Constant:
    return ast.copy_location(ast.Constant(value), at)


def _sites(  # noqa: C901 - one case per kind of guard
    tree: ast.Module,
) -> Iterator[tuple[str, str, Any, str, Any, ast.AST]]:
    """(function, what is done to which text, holder, field, index or None, new node) of each guard, in order;
    putting the new node there breaks it."""

    def within(node: ast.AST, function: str) -> Iterator[tuple[str, str, Any, str, Any, ast.AST]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}" if function else node.name
        if function and isinstance(node, ast.If | ast.IfExp) and not isinstance(node.test, ast.BoolOp):
            test = node.test
            yield function, f"never `{ast.unparse(test)}`", node, "test", None, _const(False, test)
            if isinstance(node, ast.IfExp) or node.orelse:
                yield function, f"always `{ast.unparse(test)}`", node, "test", None, _const(True, test)
        if function and isinstance(node, ast.comprehension):
            for index, test in enumerate(node.ifs):
                if not isinstance(test, ast.BoolOp):
                    text = f"always `{ast.unparse(test)}`"
                    yield function, text, node, "ifs", index, _const(True, test)
        if function and isinstance(node, ast.BoolOp):
            for index, operand in enumerate(node.values):
                if isinstance(operand, ast.Constant | ast.Tuple | ast.Dict | ast.List):
                    continue  # a default, which guards nothing
                text = f"without `{ast.unparse(operand)}`"
                yield function, text, node, "values", index, _const(isinstance(node.op, ast.And), operand)
        if function and isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _EDGES:
            text = f"edge of `{ast.unparse(node)}`"
            yield function, text, node, "ops", 0, _EDGES[type(node.ops[0])]()
        for child in ast.iter_child_nodes(node):
            yield from within(child, function)

    yield from within(tree, "")


def guards(path: str, source: str) -> list[Guard]:
    """The guards of one module, each with a name of its own."""
    found: list[Guard] = []
    seen: dict[str, int] = {}
    short = path.removeprefix("src/isthmus/")
    for number, (function, text, *_) in enumerate(_sites(ast.parse(source))):
        name = f"{short}:{function}: {text[:MAX_TEXT]}"
        seen[name] = seen.get(name, 0) + 1
        found.append(Guard(path, name if seen[name] == 1 else f"{name} #{seen[name]}", number))
    return found


def broken(source: str, guard: Guard) -> ast.Module:
    """The module with that guard broken."""
    tree = ast.parse(source)
    if guard.number < 0:
        return tree
    _, _, holder, field, index, new = list(_sites(tree))[guard.number]
    if index is None:
        setattr(holder, field, new)
    else:
        getattr(holder, field)[index] = new
    return tree


def guards_of(room: Room, root: Path = ROOT) -> list[Guard]:
    """All guards of a room."""
    paths = sorted(path for pattern in room.files for path in root.glob(pattern))
    return [
        guard
        for path in paths
        if path.name not in room.leave
        for guard in guards(str(path.relative_to(root)), path.read_text())
    ]


def reasons(root: Path = ROOT) -> dict[str, str]:
    """Why guards may survive, by name."""
    raw = tomllib.loads((root / SURVIVORS).read_text())
    return {each["guard"]: each["reason"] for each in raw.get("survivor", [])}


class _First:
    """A pytest plugin: the first test that failed, or that could not be collected."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.name:
            self.name = f"{report.nodeid} (cannot be imported)"


def _stages(guard: Guard, room: Room) -> list[list[str]]:
    """The tests of the guard's own module, then all of its room."""
    name = f"test_{Path(guard.path).stem}.py"
    own = [str(path) for folder in room.tests for path in sorted(Path(folder).glob(name))]
    stages = [own, [folder for folder in room.tests if Path(folder).exists()]]
    return [stage for stage in stages if stage]


def _in_child(guard: Guard, room: Room, answer: int) -> None:
    """Run the tests with the guard broken; tell the first that failed. Never returns."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (TIME_S, TIME_S))
    path = Path(guard.path).resolve()
    tree = broken(path.read_text(), guard)
    original = importlib.machinery.SourceFileLoader.get_code

    @functools.wraps(original)
    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        if Path(self.path).resolve() == path:
            return compile(tree, str(path), "exec")
        return original(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    import pytest

    first, code = _First(), 0
    options = ["-x", "-q", "-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider", "--timeout=0"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    for stage in _stages(guard, room):
        code = code or pytest.main([*options, *stage], plugins=[first])
    name = first.name or ("" if code == 0 else f"pytest ended with {int(code)}")
    os.write(answer, name.encode()[:2000])
    os._exit(0)


def attempt(guard: Guard, room: Room) -> Outcome:
    """Break one guard in a process of its own."""
    began = time.monotonic()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            _in_child(guard, room, write)
        except BaseException as error:
            os.write(write, f"failed with {type(error).__name__}".encode())
        finally:
            os._exit(0)
    os.close(write)
    while time.monotonic() - began < TIME_S:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    with os.fdopen(read, "rb") as pipe:
        name = pipe.read().decode()
    if os.WIFSIGNALED(status):
        name = f"the limit of {TIME_S} s"
    return Outcome(guard, name, time.monotonic() - began)


def _share(todo: Sequence[Guard], room: Room, answers: int, until: float) -> None:
    with os.fdopen(answers, "w") as pipe:
        for guard in todo:
            if time.monotonic() > until:
                return
            outcome = attempt(guard, room)
            pipe.write(f"{guard.name}\t{outcome.test}\t{outcome.took_s:.1f}\n")
            pipe.flush()


def run(room: Room, todo: Sequence[Guard], workers: int, within_s: float) -> list[Outcome]:
    """Break all, `workers` at a time, or as many as there is time for, spread over all modules; prints those
    that survive as they come."""
    pipes, until = [], time.monotonic() + within_s
    todo = sorted(todo, key=lambda each: zlib.crc32(each.name.encode()))
    for index in range(workers):
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(read)
            _share(todo[index::workers], room, write, until)
            os._exit(0)
        os.close(write)
        pipes.append(os.fdopen(read))
    by_name = {guard.name: guard for guard in todo}
    outcomes = []
    with selectors.DefaultSelector() as waiting:
        for pipe in pipes:
            waiting.register(pipe, selectors.EVENT_READ)
        while waiting.get_map():
            for key, _ in waiting.select():
                line = key.fileobj.readline()  # type: ignore[union-attr]
                if not line:
                    waiting.unregister(key.fileobj)
                    continue
                name, test, took = line.rstrip("\n").split("\t")
                outcomes.append(Outcome(by_name[name], test, float(took)))
                if not test:
                    print(f"survived: {name} ({took} s)", flush=True)
    return outcomes


def settled_before(page: Path, todo: Sequence[Guard], known: dict[str, str]) -> list[Outcome]:
    """What a page of an earlier run says of guards that are still there, where that is final."""
    rows = [line.split(" | ") for line in page.read_text().splitlines()] if page.exists() else []
    tests = {row[0][2:].replace("\\|", "|"): row[1] for row in rows if len(row) == 2}
    return [
        Outcome(guard, tests[guard.name].removesuffix(" |").strip("`") if caught else "", 0.0)
        for guard in todo
        if (caught := tests.get(guard.name, "").startswith("`"))
        or (guard.name in tests and guard.name in known)
    ]


def report(name: str, outcomes: Sequence[Outcome], of: int, known: dict[str, str]) -> str:
    """The page of one room, which has `of` guards."""
    caught = [each for each in outcomes if each.test]
    lines = [
        f"# Guards of {name}",
        "",
        f"Written by `make mutate ROOM={name}`. {len(outcomes)} guards of {of} were broken one at a",
        f"time: {len(caught)} made a test fail, {len(outcomes) - len(caught)} did not.",
        "",
        "| guard | first test that failed |",
        "|---|---|",
    ]
    for each in outcomes:
        guard = each.guard.name.replace("|", "\\|")
        test = each.test.rpartition("/")[2].replace("|", "\\|")
        text = f"`{test}`" if test else f"none: {known.get(each.guard.name, '**no reason given**')}"
        lines.append(f"| {guard} | {text} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Break what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rooms", nargs="*", default=[*ROOMS])
    parser.add_argument("--only", default="", help="guards whose name holds this text; writes no page")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--within", type=float, default=86400, help="seconds in which to begin guards")
    parser.add_argument(
        "--resume", action="store_true", help="keep what the page says of guards caught before"
    )
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    known, bad = reasons(), 0
    with tempfile.TemporaryDirectory(prefix="isthmus-mutate-") as folder:
        for part in ("src", "tests", "scripts", "examples", "docs", "charts", "pyproject.toml"):
            source, target = ROOT / part, Path(folder) / part
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        os.chdir(folder)
        sys.path[:0] = [f"{folder}/src", folder]
        sys.dont_write_bytecode = False
        import hypothesis  # noqa: F401 - loaded once, for all children
        import msgspec  # noqa: F401
        import pytest  # noqa: F401

        for name in arguments.rooms:
            room = ROOMS[name]
            todo = [each for each in guards_of(room, Path(folder)) if arguments.only in each.name]
            print(f"{name}: {len(todo)} guards", flush=True)
            if arguments.list:
                print("\n".join(each.name for each in todo))
                continue
            whole = attempt(Guard(room.files[0].replace("*", "__init__"), "nothing", -1), room)
            if whole.test:
                print(f"{name}: {whole.test} fails already; nothing was broken")
                return 2
            print(f"{name}: all tests take {whole.took_s:.0f} s", flush=True)
            page = ROOT / "docs" / "mutation" / f"{name}.md"
            before = settled_before(page, todo, known) if arguments.resume else []
            known_to_fail = {each.guard for each in before}
            left = [each for each in todo if each not in known_to_fail]
            outcomes = [*before, *run(room, left, arguments.workers, arguments.within)]
            outcomes.sort(key=lambda each: (each.guard.path, each.guard.number))
            survived = [each for each in outcomes if not each.test]
            new = [each for each in survived if each.guard.name not in known]
            bad += len(new)
            caught = len(outcomes) - len(survived)
            print(f"{name}: {caught} caught, {len(survived)} survived, {len(new)} of them without a reason")
            if not arguments.only:
                page.parent.mkdir(exist_ok=True)
                page.write_text(report(name, outcomes, len(todo), known))
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
