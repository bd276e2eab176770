"""One log line per fact, readable or JSON. Bodies, prompts and secrets are never logged."""

import logging.config
from typing import Any

import structlog

SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def logging_settings(log_format: str, *, debug: bool) -> dict[str, Any]:
    """Return the settings of Python's logging for `console` or `json` lines on standard error."""
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=False)
    )
    trace = structlog.processors.format_exc_info if log_format == "json" else _unchanged
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "lines": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": SHARED,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    trace,
                    renderer,
                ],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "root": {"handlers": ["stderr"], "level": "INFO"},
        "loggers": {
            "django": {"level": "INFO"},
            "django.request": {"level": "ERROR"},
            "django.server": {"level": "INFO" if debug else "WARNING"},
            "psycopg.pool": {"level": "ERROR"},
            "uvicorn.access": {"level": "WARNING"},
        },
    }


def configure(settings: dict[str, Any]) -> None:
    """Set up Python's logging and structlog on top of it."""
    logging.config.dictConfig(settings)
    structlog.configure(
        processors=[*SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _unchanged(logger: Any, name: str, event: Any) -> Any:
    return event
