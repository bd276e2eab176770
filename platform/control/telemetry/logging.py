"""One log line per fact, readable or JSON. Bodies, prompts and secrets are never logged."""

import logging.config
import re
from typing import Any

import structlog

from control.errors import is_database_unavailable

LIVE_LINK = re.compile(
    r"(/invitations/|/accounts/(?:confirm-email|password/reset/key|login/trust-device)/)[^\s/?\"'>]+"
)
SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


class OutageFilter(logging.Filter):
    """Shortens the record of a request that failed because the database is unavailable to one line:
    there will be many."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop the traceback of an outage; keep every record."""
        if record.exc_info and is_database_unavailable(record.exc_info[1]):
            record.exc_info = None
            record.msg, record.args = f"database_away: {record.getMessage()}", ()
        return True


class IdleTaskFilter(logging.Filter):
    """Drops Celery's line for a task that succeeded and returned nothing, or 0: dozens of periodic
    tasks a minute found nothing to do. Runs are counted in `/metrics`; failures and retries pass.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record but that of such a success."""
        task = getattr(record, "data", None)
        return not isinstance(task, dict) or task.get("return_value") not in ("None", "0")


class SecretLinkFilter(logging.Filter):
    """Removes the secret from the path of a link in an email, so that nobody can sign in with a
    log."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Remove the secrets from the message; keep every record."""
        if not isinstance(record.msg, str):
            return True  # our own records, which are dictionaries
        message = record.getMessage()
        redacted = LIVE_LINK.sub(r"\1…", message)
        if redacted != message:
            record.msg, record.args = redacted, ()
        return True


def logging_settings(log_format: str, *, debug: bool) -> dict[str, Any]:
    """Return the settings of Python's logging for `console` or `json` lines on standard error."""
    # Plain tracebacks: structlog's default would print local variables, including secrets.
    as_text = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    renderers: dict[str, list[Any]] = {
        "json": [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()],
        "console": [as_text],
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "lines": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": SHARED,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *renderers[log_format],
                ],
            }
        },
        "filters": {
            "idle_tasks": {"()": IdleTaskFilter},
            "outages": {"()": OutageFilter},
            "links": {"()": SecretLinkFilter},
        },
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "lines",
                "filters": ["outages", "links"],
            }
        },
        "root": {"handlers": ["stderr"], "level": "INFO"},
        "loggers": {
            "celery.app.trace": {"filters": ["idle_tasks"]},
            # It would log that a task was received; how it ended is logged by `celery.app.trace`.
            "celery.worker.strategy": {"level": "WARNING"},
            "django": {"level": "INFO"},
            "django.request": {"level": "ERROR"},
            "django.server": {"level": "INFO" if debug else "WARNING"},
            # It would log full URLs, and a webhook's may hold a token of the customer's.
            "httpx": {"level": "WARNING"},
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
