"""Plain requests to a sandbox's API server for tests and the command line, without an event loop.

`Cluster.request` is its only caller. One connection per request; no retry. Code that talks to an API server
for its living uses isthmus.kube.client.
"""

from __future__ import annotations

import http.client
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from isthmus.kube import answers, errors

TIMEOUT_S: Final = 30.0


def request(
    server: str, path: str, *, method: str, ca_pem: str, headers: dict[str, str], body: bytes | None
) -> Any:
    """The decoded JSON of the answer (text where it is not JSON).

    Blocks. Raises the ApiError of kube/errors.py for 400 and above, Unreachable where there is no answer.
    """
    where = urlsplit(server)
    context = ssl.create_default_context(cadata=ca_pem)
    connection = http.client.HTTPSConnection(
        where.hostname or "", where.port, timeout=TIMEOUT_S, context=context
    )
    try:
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        content = answer.read()
        received = dict(answer.getheaders())
    except (OSError, http.client.HTTPException) as error:
        raise errors.Unreachable(f"{method} {path}: {error}") from error
    finally:
        connection.close()
    if answer.status >= 400:
        raise answers.error_from(answer.status, content, f"{method} {path}", headers=received, now=0.0)
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        return content.decode(errors="replace")
