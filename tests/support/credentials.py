"""Credentials that control and the fleet take in tests, made from their environment's root."""

import os

from serving.contract.credential import ROOT_VARIABLE, Caller, Role, issue


def bearer(role: Role, name: str = "test", number: int = 1) -> dict[str, str]:
    """Return the header that such a process shows."""
    credential = issue(os.environ[ROOT_VARIABLE], Caller(role, name, number))
    return {"authorization": f"Bearer {credential}"}
