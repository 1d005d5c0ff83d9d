"""Logging: constant messages with key/value pairs, on stderr, as text for people or JSON for machines.

Every module takes its logger with `logs.get(__name__)`; the command line calls `configure` once. Before that,
and in tests, structlog's default of writing nothing below WARNING holds. Values are cut at 2,000 characters,
so that a hostile or huge error text cannot fill a disk.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, Literal

import structlog

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")
MAX_VALUE_CHARS: Final = 2000

Logger = structlog.stdlib.BoundLogger


def get(name: str) -> Logger:
    """A logger that carries `module=name`, without the package's prefix."""
    logger: Logger = structlog.get_logger(module=name.removeprefix("isthmus."))
    return logger


def _cut(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    for key, value in event.items():
        if isinstance(value, str) and len(value) > MAX_VALUE_CHARS:
            event[key] = value[:MAX_VALUE_CHARS] + "…"
    return event


def configure(level: str, fmt: Literal["text", "json"] | str) -> None:
    """Set the process's log level (one of LEVELS) and format (one of FORMATS)."""
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        _cut,
    ]
    render: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if fmt == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), timestamp_key="time")
    )
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
