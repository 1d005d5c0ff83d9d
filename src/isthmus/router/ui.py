"""The page for people at /ui: three static files of ours, the state as JSON, and the same once a second.

app.py mounts `Page.routes`. The page needs nothing from elsewhere, and its policy lets it load nothing else;
names that come from clusters are only ever text in it. A snapshot is made and encoded once for all who
watch, at most every PERIOD_S; watchers are bounded, and what they do not read is not made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from importlib import resources
from typing import Any, Final

from isthmus.clock import Clock
from isthmus.web.routes import (
    EVENT_STREAM,
    JSON,
    Answer,
    Handler,
    Request,
    Route,
    get,
    json_body,
    openai_error,
)

PERIOD_S: Final = 1.0
MAX_WATCHERS: Final = 64
FILES: Final = {
    "/ui": ("index.html", "text/html; charset=utf-8"),
    "/ui/page.css": ("page.css", "text/css; charset=utf-8"),
    "/ui/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Page:
    """See the module. `state` makes what the page shows, and must be fast."""

    def __init__(self, state: Callable[[], Any], clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._made_s = float("-inf")
        self._body = b""
        self.watchers = 0

    def routes(self) -> list[Route]:
        """The page, its files, and what it shows."""
        files = [get(path, _file(*found)) for path, found in FILES.items()]
        return [*files, get("/ui/state", self._once), get("/ui/events", self._follow)]

    async def _once(self, _: Request) -> Answer:
        return Answer(body=self._snapshot(), content_type=JSON)

    async def _follow(self, _: Request) -> Answer:
        if self.watchers >= MAX_WATCHERS:
            return openai_error(503, "too many pages are open", headers={"Retry-After": "5"})
        return Answer(body=self._events(), content_type=EVENT_STREAM)

    async def _events(self) -> AsyncGenerator[bytes, None]:
        self.watchers += 1
        try:
            while True:
                yield b"data: %b\n" % self._snapshot() + b"\n"
                await asyncio.sleep(PERIOD_S)
        finally:
            self.watchers -= 1

    def _snapshot(self) -> bytes:
        now = self._clock.monotonic()
        if now - self._made_s >= PERIOD_S / 2:
            self._body, self._made_s = json_body(self._state()), now
        return self._body


def _file(name: str, content_type: str) -> Handler:
    body = (resources.files("isthmus.router") / "page" / name).read_bytes()

    async def answer(_: Request) -> Answer:
        return Answer(body=body, content_type=content_type, headers=HEADERS)

    return answer
