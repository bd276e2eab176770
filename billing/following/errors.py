"""What following refuses to whoever asks for it."""

from datetime import date

from control.errors import ServiceError


class NotAtHandError(ServiceError):
    """The file of an archived day cannot be read: nothing is lost while a copy of it is kept."""

    status = 503
    code = "archive_not_at_hand"
    retry_after_seconds = 60

    def __init__(self, day: date) -> None:
        super().__init__(f"The archive of {day} is unavailable at the moment. Try again later.")
        self.day = day
