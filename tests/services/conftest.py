"""Tracebacks in logs are plain: structlog's own default renders every local variable, which takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _plain_tracebacks() -> Iterator[None]:
    render = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, render])
    yield
    structlog.reset_defaults()
