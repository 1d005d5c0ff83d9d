"""What a user would put in front of a model server instead: nginx and the LiteLLM proxy, and Isthmus' router.

Each is one process with one worker in front of the same backend, started and killed by benchmarks.router.
nginx comes from Debian's package and LiteLLM from its Python package; both are fetched once, into the cache
folder, and never into the project's environment. Their settings are the leanest that still forward chat
completions and stream: no logs, kept connections to the backend.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import Request, urlopen

from benchmarks.process import cpu_s
from isthmus.api.pools import PoolKey
from isthmus.sandbox import places

READY_S = 90.0
LITELLM = "litellm[proxy]==1.110.2"


class Contender(NamedTuple):
    """A running process, and those that it started, that forwards from `port`."""

    name: str
    port: int
    pids: tuple[int, ...]

    def cpu_s(self) -> float:
        """Seconds of CPU that it has used so far."""
        return sum(cpu_s(pid) for pid in self.pids)


@contextmanager
def nginx(folder: Path, port: int, backends: Sequence[int]) -> Iterator[Contender]:
    """nginx' proxy_pass without buffering, one worker."""
    program = _nginx_program()
    servers = "".join(f"server 127.0.0.1:{each};" for each in backends)
    room = folder / "nginx"
    room.mkdir()
    config = room / "nginx.conf"
    paths = " ".join(
        f"{each}_temp_path {each};" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"""
        daemon off; master_process off; pid {room}/pid; error_log {room}/error.log crit;
        events {{ worker_connections 4096; }}
        http {{
          access_log off; keepalive_requests 10000000; {paths}
          upstream pool {{ {servers} keepalive 256; keepalive_requests 10000000; }}
          server {{
            listen 127.0.0.1:{port} backlog=1024;
            location / {{
              proxy_pass http://pool; proxy_buffering off;
              proxy_http_version 1.1; proxy_set_header Connection "";
            }}
          }}
        }}
        """
    )
    with _running("nginx", port, [str(program), "-p", str(room), "-c", str(config)], {}, room) as found:
        yield found


@contextmanager
def litellm(folder: Path, port: int, backends: Sequence[int]) -> Iterator[Contender]:
    """The LiteLLM proxy, one worker, without keys, database or callbacks."""
    program = _litellm_program()
    room = folder / "litellm"
    room.mkdir()
    config = room / "config.yaml"
    models = [
        {
            "model_name": "example/tiny",
            "litellm_params": {
                "model": "openai/example/tiny",
                "api_base": f"http://127.0.0.1:{each}/v1",
                "api_key": "sk-benchmark",
            },
        }
        for each in backends
    ]
    config.write_text(json.dumps({"model_list": models, "litellm_settings": {"telemetry": False}}))
    arguments = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    allow = "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"
    environ = {
        allow: "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
    }
    with _running("LiteLLM", port, [str(program), *arguments], environ, room) as found:
        yield found


@contextmanager
def isthmus(folder: Path, port: int, backends: Sequence[int]) -> Iterator[Contender]:
    """`isthmus router` with a pool for each backend, from a file."""
    room = folder / f"isthmus-{port}"
    room.mkdir()
    pools = room / "pools.json"
    pools.write_text(json.dumps(pools_file(backends)))
    command = [sys.executable, "-m", "isthmus.cli.main", "router", "--pools-file", str(pools)]
    listen = ["--listen", f"127.0.0.1:{port}", "--log-level", "warning"]
    with _running("Isthmus", port, [*command, *listen], {}, room) as found:
        yield found


def pools_file(backends: Sequence[int]) -> dict[str, object]:
    """One pool for each backend, as a router reads them from a file."""
    keys = [PoolKey("here", "bench", f"pool-{number}") for number in range(len(backends))]
    return {
        "pools": [
            {
                "cluster_id": key.cluster_id,
                "namespace": key.namespace,
                "name": key.name,
                "frontend_urls": [f"http://127.0.0.1:{backend}"],
                "models": [{"id": "example/tiny"}],
            }
            for key, backend in zip(keys, backends, strict=True)
        ]
    }


@contextmanager
def process(name: str, command: Sequence[str], room: Path, environ: Mapping[str, str]) -> Iterator[int]:
    """A process with its output in a file, killed with all that it started; gives its PID."""
    with (room / f"{name}.log").open("ab") as log:
        started = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=room, env={**os.environ, **environ}, start_new_session=True
        )
    try:
        yield started.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


@contextmanager
def _running(
    name: str, port: int, command: Sequence[str], environ: Mapping[str, str], room: Path
) -> Iterator[Contender]:
    with process(name, command, room, environ) as pid:
        wait_ready(port, room / f"{name}.log")
        yield Contender(name, port, (pid, *_children(pid)))


def wait_ready(port: int, log: Path) -> None:
    """Return once GET /v1/models is answered with 200. Raises RuntimeError with the end of the log."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        with suppress(URLError, OSError):
            request = Request(
                f"http://127.0.0.1:{port}/v1/models", headers={"Authorization": "Bearer sk-benchmark"}
            )
            with urlopen(request, timeout=2) as answer:
                if answer.status == 200 and b"example/tiny" in answer.read():
                    return
        time.sleep(0.05)
    raise RuntimeError(f"not ready: {log.read_text()[-2000:]}")


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in text.split()]


def _nginx_program() -> Path:
    """Debian's nginx: an installed one, or the package unpacked into the cache."""
    installed = Path("/usr/sbin/nginx")
    if installed.exists():
        return installed
    room = places.cache_home() / "bench-nginx"
    program = room / "usr/sbin/nginx"
    if not program.exists():
        room.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", "nginx"], cwd=room, check=True, capture_output=True)
        package = next(room.glob("nginx_*.deb"))
        subprocess.run(["dpkg", "-x", str(package), str(room)], check=True)
    return program


def _litellm_program() -> Path:
    """LiteLLM in an environment of its own in the cache."""
    room = places.cache_home() / "bench-litellm"
    program = room / "bin/litellm"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(room)], check=True)
        subprocess.run([str(room / "bin/pip"), "install", "-q", LITELLM], check=True)
    return program
