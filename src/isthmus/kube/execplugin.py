"""Credentials from a command, by the contract of client.authentication.k8s.io v1 and v1beta1.

One of the Credentials of credentials.py; kubeconfig.py makes it from `users[].user.exec`. The command runs as
a subprocess with a deadline, never on the event loop, one run at a time however many requests wait for it.
Its answer is kept until `expirationTimestamp`, or until a 401. It gets no terminal: a plugin that must ask a
person is refused with a text that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from isthmus.api.meta import Raw
from isthmus.api.times import parse_time
from isthmus.clock import Clock
from isthmus.errors import UserError
from isthmus.kube.credentials import Pem
from isthmus.kube.errors import Unreachable

DEADLINE_S: Final = 60.0
EARLY_S: Final = 10.0
"""Seconds before its expiry at which a credential is fetched anew."""
VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
MAX_OUTPUT_BYTES: Final = 1 << 20


class ExecCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What `exec` in a kubeconfig says. `cluster` is the ExecCredential's spec.cluster, {} if not wanted."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    api_version: str
    install_hint: str = ""
    cluster: Raw = {}


class _Status(msgspec.Struct, rename="camel"):
    expiration_timestamp: str = ""
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecCredentials:
    """See the module. `environ` is what the command inherits; `deadline_s` bounds one run."""

    renewable = True

    def __init__(
        self,
        command: ExecCommand,
        *,
        environ: Mapping[str, str] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._command = command
        self._environ = dict(os.environ if environ is None else environ)
        self._deadline_s = deadline_s
        self._lock = asyncio.Lock()
        self._authorization: str | None = None
        self._certificate: Pem | None = None
        self._stale_at = float("inf")
        self._runs = 0

    def cached(self, now: float) -> str | None:
        """See Credentials.cached."""
        return self._authorization if now < self._stale_at else None

    async def refresh(self, clock: Clock) -> str:
        """Run the command, or wait for the run that is under way and take its answer.

        Raises UserError where the command is missing or breaks the contract, Unreachable(sent=False) where it
        failed or took too long.
        """
        seen = self._runs
        async with self._lock:
            if self._runs == seen or self._authorization is None:
                status = await self._run()
                self._take(status, clock)
                self._runs += 1
            assert self._authorization is not None
            return self._authorization

    def renew(self) -> None:
        """Run the command again before the next request."""
        self._authorization = None

    def certificate(self) -> Pem | None:
        """See Credentials.certificate."""
        return self._certificate

    async def _run(self) -> _Status:
        command = self._command
        raw_info: dict[str, Any] = {
            "kind": "ExecCredential",
            "apiVersion": command.api_version,
            "spec": {"interactive": False} | ({"cluster": command.cluster} if command.cluster else {}),
        }
        environ = self._environ | command.env
        environ["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(raw_info).decode()
        try:
            process = await asyncio.create_subprocess_exec(
                command.command,
                *command.args,
                env=environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except (FileNotFoundError, PermissionError) as error:
            raise UserError(
                f"the kubeconfig's credentials plugin {command.command!r} cannot be run: {error.strerror}",
                hint=command.install_hint or "install it or put its folder on PATH",
            ) from error
        try:
            async with asyncio.timeout(self._deadline_s):
                output, errors = await process.communicate()
        except TimeoutError as error:
            raise Unreachable(
                f"the credentials plugin {command.command!r} gave no answer in {self._deadline_s:g} s",
                sent=False,
            ) from error
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            text = errors.decode(errors="replace").strip()[-500:]
            raise Unreachable(
                f"the credentials plugin {command.command!r} ended with {process.returncode}: {text}",
                sent=False,
            )
        return self._checked(output)

    def _checked(self, output: bytes) -> _Status:
        command = self._command
        try:
            if len(output) > MAX_OUTPUT_BYTES:
                raise msgspec.ValidationError(f"longer than {MAX_OUTPUT_BYTES} bytes")
            answer = msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.DecodeError as error:
            raise UserError(
                f"the credentials plugin {command.command!r} printed no ExecCredential: {error}"
            ) from error
        if answer.kind != "ExecCredential" or answer.api_version != command.api_version:
            raise UserError(
                f"the credentials plugin {command.command!r} answered with {answer.kind or 'nothing'} of "
                f"{answer.api_version or 'no version'}; the kubeconfig asks for {command.api_version}"
            )
        status = answer.status
        if status is None or not (
            status.token or (status.client_certificate_data and status.client_key_data)
        ):
            raise UserError(
                f"the credentials plugin {command.command!r} gave neither a token nor a certificate and key"
            )
        return status

    def _take(self, status: _Status, clock: Clock) -> None:
        self._stale_at = float("inf")
        if status.expiration_timestamp:
            try:
                left = parse_time(status.expiration_timestamp) - clock.now()
            except ValueError as error:
                raise UserError(
                    f"the credentials plugin {self._command.command!r} gave the expirationTimestamp "
                    f"{status.expiration_timestamp!r}, which is no RFC 3339 time"
                ) from error
            # One that is (nearly) over as it comes is used for a second, not fetched anew for each request.
            self._stale_at = clock.monotonic() + max(left - EARLY_S, min(left, 1.0), 1.0)
        self._certificate = (
            Pem(status.client_certificate_data.encode(), status.client_key_data.encode())
            if status.client_certificate_data
            else None
        )
        self._authorization = f"Bearer {status.token}" if status.token else ""
