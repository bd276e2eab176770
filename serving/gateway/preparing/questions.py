"""What passes between a gateway and its preparers: two questions make a job, a body and the record
of the model that it names. A job's fields for the engine come back as the payload."""

from dataclasses import dataclass

from serving.contract.records import ModelRecord
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Body:
    """The path of the route that a body came in by; the body itself is the payload."""

    path: str


@dataclass(frozen=True, slots=True)
class Named:
    """The body was read: the model it names."""

    model_name: str


@dataclass(frozen=True, slots=True)
class Refused:
    """What the client is to be told."""

    message: str
    code: str | None
    param: str | None
    quoted: str

    def error(self) -> BadRequest:
        """Return it as the error it was."""
        return BadRequest(self.message, code=self.code, param=self.param, quoted=self.quoted)


Question = Body | ModelRecord
Reply = Named | InferenceRequest | Refused
