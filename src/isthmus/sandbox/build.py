"""The control plane's programs: found on this machine, or built once from the Go module in controlplane/.

`find` looks in the order of docs/sandbox.md: ISTHMUS_CONTROLPLANE, KUBEBUILDER_ASSETS, the cache; it never
builds. `ensure` (`isthmus sandbox build`) builds where `find` finds nothing, with a lock so that two builds
at once make one, and an atomic rename so that a binary that is there is whole. The cache's key is the hash of
the module's files and of how it is built, so a changed module is a new binary and old ones stay valid.
programs.py builds other modules in the same way.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from isthmus.errors import UserError
from isthmus.sandbox import compiler, places
from isthmus.sandbox.compiler import Job, Progress
from isthmus.sandbox.settings import Programs

BINARY: Final = "controlplane"
ASSETS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
HINT: Final = "run `make controlplane` once on this machine (`isthmus sandbox build`)"


def find(environ: Mapping[str, str] | None = None) -> Programs:
    """The programs. Raises UserError where there are none, or where a variable names something wrong."""
    env = os.environ if environ is None else environ
    programs = _from_environment(env)
    if programs is not None:
        return programs
    binary = cached()
    if not binary.exists():
        raise UserError("the control plane is not built yet", hint=HINT)
    return single(binary)


def ensure(progress: Progress, environ: Mapping[str, str] | None = None) -> Programs:
    """The programs, built first where there are none: some minutes, once per machine.

    Raises UserError where they cannot be built, with the compiler's words.
    """
    env = os.environ if environ is None else environ
    programs = _from_environment(env)
    if programs is not None:
        return programs
    binary = cached()
    build_once(job(), binary, progress=progress, env=env)
    return single(binary)


def build_once(job: Job, binary: Path, *, progress: Progress, env: Mapping[str, str]) -> None:
    """Build a Go module into `binary`, unless it is there.

    Raises UserError where it cannot be built, and where what was built does not run.
    """
    if binary.exists():
        return
    folder = binary.parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        _take(lock.fileno(), lambda: progress.say("another build is running; waiting for it"))
        if not binary.exists():
            partial = folder / f"{binary.name}.partial"
            compiler.compile_module(job, partial, progress=progress, env=env)
            _check(partial, job.what)
            partial.replace(binary)


def single(binary: Path) -> Programs:
    """The programs of the one binary that is all of them."""
    call = str(binary)
    return Programs(
        etcd=(call, "etcd"),
        apiserver=(call, "apiserver"),
        controller_manager=(call, "controller-manager"),
        kubectl=(call, "kubectl"),
    )


def cached() -> Path:
    """Where the binary of this clone's module lies, or will lie."""
    return places.cache_home() / f"controlplane-{key(job())}" / BINARY


def job() -> Job:
    """The control plane's module. Raises UserError outside a clone."""
    module = places.module()
    return Job(module, "the control plane", _linker_flags(module))


def key(job: Job) -> str:
    """16 hex digits that change with the module's files, with how it is built and with the machine's kind."""
    digest = hashlib.sha256()
    sources = sorted(path for path in job.module.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    for path in sources:
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    extracts = (f"{each.module}/{each.path}" for each in job.extracts)
    digest.update(" ".join((job.flags, *compiler.FLAGS, *extracts)).encode())
    digest.update(f"{platform.system()} {platform.machine()}".encode())
    return digest.hexdigest()[:16]


def _from_environment(env: Mapping[str, str]) -> Programs | None:
    given = env.get("ISTHMUS_CONTROLPLANE", "")
    if given:
        path = Path(given)
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise UserError(
                f"ISTHMUS_CONTROLPLANE={given}: not an executable file",
                hint="let it name the binary that `isthmus sandbox build` prints, or unset it",
            )
        return single(path.absolute())
    assets = env.get("KUBEBUILDER_ASSETS", "")
    if assets:
        paths = [Path(assets).absolute() / name for name in ASSETS]
        # envtest's own archives lack the controller manager; such a folder is passed by.
        if all(os.access(path, os.X_OK) for path in paths):
            etcd, apiserver, manager, kubectl = ((str(path),) for path in paths)
            return Programs(etcd=etcd, apiserver=apiserver, controller_manager=manager, kubectl=kubectl)
    return None


def _linker_flags(module: Path) -> str:
    """No symbols, and the version that the servers report: that of the module they are built from."""
    match = re.search(r"^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)$", (module / "go.mod").read_text(), re.M)
    if match is None:
        raise UserError(f"{module / 'go.mod'} requires no k8s.io/kubernetes")
    version, major, minor = match.groups()
    base = "k8s.io/component-base/version"
    return (
        f"-s -w -X {base}.gitVersion={version} -X {base}.gitMajor={major} -X {base}.gitMinor={minor}"
        f" -X k8s.io/client-go/pkg/version.gitVersion={version}"
    )


def _take(lock: int, on_wait: Callable[[], None]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        on_wait()
        fcntl.flock(lock, fcntl.LOCK_EX)


def _check(binary: Path, what: str) -> None:
    try:
        subprocess.run([binary, "version"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{what} was built but does not run: {error}") from error
