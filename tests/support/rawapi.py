"""A plain HTTP client of an API server for tests: what the server answers, status codes and texts included.

It is synchronous and knows no types, so that a test of admission reads as what a user's manifest meets. It is
built from a kubeconfig, and keeps one connection.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import yaml

from isthmus.api.meta import Raw, Resource

IDLE_S = 5.0
STRICT = {"fieldValidation": "Strict"}
"""What kubectl asks for: unknown and duplicate fields are errors."""


class Answer(NamedTuple):
    """A response: its code, its decoded body, and the warnings that came with it."""

    code: int
    body: Any
    warnings: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The text of a refusal."""
        return str(self.body.get("message", ""))

    @property
    def fields(self) -> set[str]:
        """The fields that a refusal names, without the API server's follow-ups that name none."""
        causes = self.body.get("details", {}).get("causes", [])
        return {cause["field"].removeprefix(".") for cause in causes} - {"<nil>"}


class RawApi:
    """One user's view of one API server."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        context = ssl.create_default_context(cadata=_pem(cluster, "certificate-authority", kubeconfig.parent))
        if "client-certificate" in user or "client-certificate-data" in user:
            _load_client_certificate(context, user, kubeconfig.parent)
        self._headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self._address = urlsplit(cluster["server"])
        self._context = context
        self._connection: http.client.HTTPSConnection | None = None
        self._used = 0.0

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> Answer:
        """Send one request and read its answer; nothing is retried. A connection that was idle for long is
        not used again, since the server may just be closing it."""
        now = time.monotonic()
        if now - self._used > IDLE_S:
            self.close()
        self._used = now
        if self._connection is None:
            assert self._address.hostname
            self._connection = http.client.HTTPSConnection(
                self._address.hostname, self._address.port, context=self._context, timeout=15
            )
        url = f"{path}?{urlencode(query)}" if query else path
        headers = self._headers | {"Content-Type": content_type, "Accept": accept}
        payload = None if body is None else json.dumps(body).encode()
        try:
            self._connection.request(method, url, body=payload, headers=headers)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        body = json.loads(text) if text.startswith(b"{") else {"message": text.decode()}
        return Answer(response.status, body, tuple(response.headers.get_all("Warning") or ()))

    def create(self, resource: Resource[Any], manifest: Raw, *, dry_run: bool = False) -> Answer:
        """POST a manifest, with kubectl's strict validation of fields."""
        query = STRICT | ({"dryRun": "All"} if dry_run else {})
        return self.call("POST", resource.path(manifest["metadata"].get("namespace", "")), manifest, **query)

    def patch(
        self, resource: Resource[Any], namespace: str, name: str, patch: Raw, *, subresource: str = ""
    ) -> Answer:
        """A JSON merge patch, as the scale subresource and kubectl edit send them."""
        path = resource.path(namespace, name, subresource)
        return self.call("PATCH", path, patch, content_type="application/merge-patch+json", **STRICT)

    def get(self, resource: Resource[Any], namespace: str, name: str, *, subresource: str = "") -> Answer:
        """GET one object."""
        return self.call("GET", resource.path(namespace, name, subresource))

    def table(self, resource: Resource[Any], namespace: str, name: str) -> Raw:
        """GET one object as the table that kubectl shows."""
        kind = "application/json;as=Table;v=v1;g=meta.k8s.io"
        table: Raw = self.call("GET", resource.path(namespace, name), accept=kind).body
        return table

    def delete(self, resource: Resource[Any], namespace: str, name: str = "") -> Answer:
        """DELETE one object, or all of a namespace where no name is given."""
        return self.call("DELETE", resource.path(namespace, name))


def _pem(entry: Raw, key: str, folder: Path) -> str:
    if f"{key}-data" in entry:
        return base64.b64decode(entry[f"{key}-data"]).decode()
    return Path(folder, entry[key]).read_text()


def _load_client_certificate(context: ssl.SSLContext, user: Raw, folder: Path) -> None:
    """ssl reads key material from files only."""
    with tempfile.TemporaryDirectory() as scratch:
        certificate, key = Path(scratch, "certificate"), Path(scratch, "key")
        certificate.write_text(_pem(user, "client-certificate", folder))
        key.write_text(_pem(user, "client-key", folder))
        context.load_cert_chain(certificate, key)
