"""Telling the worker that there is something to deliver. If that fails the beat finds it anyway,
so a broker that is away costs seconds and loses nothing."""

from threading import Event, Lock, Thread

import structlog
from django.db import connection, transaction

logger = structlog.get_logger(__name__)


def wake_on_commit() -> None:
    """Wake the worker when the transaction commits; once, however much it enqueued."""
    waiting = [callback for _, callback, *_ in connection.run_on_commit]
    if wake not in waiting:
        transaction.on_commit(wake, robust=True)


def wake() -> None:
    """Have the worker woken. Returns at once: a broker that does not answer keeps nobody."""
    _messenger.ring()


class Messenger:
    """A thread that sends the worker its task, once for whatever was asked meanwhile."""

    def __init__(self) -> None:
        self._bell = Event()
        self._lock = Lock()
        self._thread: Thread | None = None

    def ring(self) -> None:
        """Have the task sent, by a thread of this process."""
        self._bell.set()
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._run, name="outbox-messenger", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        from control.outbox.tasks import deliver

        while self._bell.wait():
            self._bell.clear()
            try:
                deliver.apply_async(retry=False, expires=60)
            except Exception as error:
                logger.warning("outbox_not_woken", error=type(error).__name__)


_messenger = Messenger()
