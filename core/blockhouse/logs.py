"""Structured logs on standard output: JSON for machines, columns for people."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog


def configure(form: Literal["json", "console"], level: str) -> None:
    """Route structlog and the standard library's logging to stdout in one format."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    last: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processor=last))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for noisy in ("kazoo.client", "py4j", "py4j.clientserver"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    quiet_clickhouse()


def quiet_clickhouse() -> None:
    """Have its client log no traceback for a refused connection: what failed is in the error of its caller. Also for a
    process without a log of its own, whose standard error is in that of another."""
    logging.getLogger("clickhouse_driver").setLevel(logging.ERROR)
