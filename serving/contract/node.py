"""What starts a node, and what the node reports: JSON on its standard input and in a file.

A node is one process beside one engine. The launcher, on the same host or through a cluster's
agent, writes the launch and reads the report; the node knows nothing else of a fleet.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from serving.contract.units import Name

ENGINE_PORT = "{engine_port}"
"""The part of an engine's command that the node replaces by the loopback port it chose."""

Port = Annotated[int, Meta(ge=1, le=65_535)]


class RouteGrant(msgspec.Struct, frozen=True):
    """The routes, each a method and an exact path, that a bearer token admits to."""

    token: Annotated[str, Meta(min_length=16)]
    routes: tuple[tuple[str, str], ...]


class NodeLaunch(msgspec.Struct, frozen=True):
    """One engine to start, and where and for whom the node listens.

    `environment` is all that the engine sees. The node binds the first free port of `port_count`
    from `port_base` on, and reports `address`, which the others reach it by. `lifeline` is the
    number of a file descriptor, the read end of a pipe: at its end the node kills the engine.
    """

    replica_id: Name
    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    environment: dict[str, str]
    grants: tuple[RouteGrant, ...]
    report_file: str
    port_base: Port
    port_count: Annotated[int, Meta(ge=1)]
    host: Name = "127.0.0.1"
    address: Name = "127.0.0.1"
    tls_certificate: str = ""
    """A PEM file, with the private key beside it in another; without both the node speaks HTTP."""
    tls_key: str = ""
    connections_max: Annotated[int, Meta(ge=1)] = 4_096
    lifeline: int | None = None


class NodeReport(msgspec.Struct, frozen=True):
    """Where a node listens, what it started, and where that engine listens on loopback."""

    url: Name
    engine_url: Name
    node_pid: int
    engine_pid: int
