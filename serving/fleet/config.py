"""What the fleet is told, read once from the environment."""

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from secrets import token_hex

from serving.contract.codec import require
from serving.contract.credential import (
    ROOT_BEFORE_VARIABLE,
    ROOT_VARIABLE,
    ServiceAuthenticator,
    ServiceIdentity,
    callers_of,
    issue,
)
from serving.contract.environment import (
    PORT_MAX,
    Environment,
    newest_first,
    one_of,
    secret,
    switch,
    text,
    url,
    whole_number,
)
from serving.contract.records import DEFAULT_FLEET
from serving.contract.replica_token import ReplicaTokens
from serving.contract.tiers import DEFAULT_GUARANTEES, Guarantees, read_guarantees

TIMING_PREFIX = "PENSTOCK_FLEET_"


@dataclass(frozen=True, slots=True)
class FleetTimings:
    """Thresholds in seconds. Each is set by `PENSTOCK_FLEET_` and its name in capitals."""

    poll_seconds: float = 1.0
    """Between two looks at a replica."""
    answer_seconds: float = 2.0
    """For an engine to answer `/health` or `/metrics`."""
    stuck_seconds: float = 10.0
    """Without token progress, while requests run, before a replica is ejected."""
    idle_probe_seconds: float = 12.0
    """Between two test generations on an idle replica; with `stuck_seconds`, under 30."""
    load_seconds: float = 900.0
    """For an engine to answer healthy."""
    canary_seconds: float = 60.0
    """For the first generation, which may compile."""
    drain_grace_seconds: float = 1.5
    """For gateways to hear of a drain before "nothing runs" is believed."""
    drain_seconds: float = 120.0
    """For running requests to finish when the fleet stops its replicas with itself; then they are
    cut. Otherwise they have as long as their deployment's requests may take."""
    term_seconds: float = 5.0
    """From SIGTERM, when nothing runs any more, to SIGKILL: vLLM 0.32 was seen to sit out its
    own shutdown timeout after all its work was done."""
    backoff_first_seconds: float = 1.0
    """Before the first restart; doubles with each failure in a row."""
    backoff_max_seconds: float = 60.0
    """The longest pause before a restart."""
    steady_seconds: float = 60.0
    """Being ready this long forgives earlier failures."""
    sample_seconds: float = 60.0
    """Between two samples of what the engines counted, on full minutes of the wall clock."""
    room_seconds: float = 10.0
    """From the end of a replica until another makes room: so long its memory may take to return,
    and the one that waits for it to look twice."""
    ended_kept_seconds: float = 600.0
    """A stopped or failed replica stays in the feed so that its reason can be read."""

    def __post_init__(self) -> None:
        for timing in fields(self):
            value = getattr(self, timing.name)
            require(value > 0, TIMING_PREFIX + timing.name.upper(), value, "more than 0")


ANY_ADDRESSES = frozenset({"0.0.0.0", "::"})  # noqa: S104  only refused where nobody is told more


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Where nodes listen, and the `address` that gateways and the fleet reach them by.

    With a certificate, a PEM file, and its key they speak TLS.
    """

    host: str = "127.0.0.1"
    address: str = "127.0.0.1"
    tls_certificate: str = ""
    tls_key: str = ""

    def __post_init__(self) -> None:
        wanted = "set where PENSTOCK_NODE_HOST names no one address"
        is_one = self.address not in ANY_ADDRESSES
        require(is_one, "PENSTOCK_NODE_ADDRESS", self.address, wanted)
        is_whole = bool(self.tls_certificate) == bool(self.tls_key)
        wanted = "set together with PENSTOCK_NODE_TLS_CERT"
        require(is_whole, "PENSTOCK_NODE_TLS_KEY", self.tls_key, wanted)


NUMBER_MAX = 10_000
LAUNCHERS = ("local", "ray")
GRAMMAR_JUDGE_BYTES = 350 * 1024**2


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """One fleet: its id, where control is, where it listens, where replicas may listen."""

    control_url: str
    credential: str
    """Shown to control."""
    callers: ServiceAuthenticator
    """Who may call us."""
    host: str
    port: int
    directory: Path
    replica_port_base: int
    replica_count_max: int
    fleet_id: str = DEFAULT_FLEET
    node: NodeConfig = NodeConfig()
    launcher: str = "local"
    """`local` starts replicas on this host, `ray` in the cluster of `ray_address`."""
    ray_address: str = ""
    ray_without_token: bool = False
    """Whether a cluster is used that asks nobody for a token."""
    tokens: ReplicaTokens = field(default_factory=lambda: ReplicaTokens([token_hex()]))
    """What nodes want to be shown; without a root secret, for this life of the fleet alone."""
    keep_replicas: bool = True
    """Whether they outlive it, for its next life to adopt."""
    kv_cache_gib: int = 1
    grammar_judges_max: int = 4
    """Sets of weights whose schemas are compiled ahead at once: a third of a gigabyte each."""
    tier_guarantees: Guarantees = field(default_factory=lambda: DEFAULT_GUARANTEES)
    """The shares of all slots that tiers have while they need them."""
    weights_roots: tuple[Path, ...] = ()
    """The only folders that weights and files of arguments may be in; without any, all."""
    otlp_endpoint: str | None = None
    log_format: str = "console"
    timings: FleetTimings = FleetTimings()

    def __post_init__(self) -> None:
        require(1 <= self.port <= 65_535, "PENSTOCK_FLEET_PORT", self.port, "1 to 65535")
        last = self.replica_port_base + self.replica_count_max - 1
        fits = 1 <= self.replica_port_base <= last <= 65_535
        wanted = f"ports up to {last} within 1 to 65535"
        require(fits, "PENSTOCK_REPLICA_PORT_BASE", self.replica_port_base, wanted)
        require(self.kv_cache_gib >= 1, "PENSTOCK_KV_CACHE_GIB", self.kv_cache_gib, "at least 1")
        judges = self.grammar_judges_max
        require(judges >= 1, "PENSTOCK_FLEET_GRAMMAR_CHECKERS", judges, "at least 1")
        has_address = self.launcher != "ray" or bool(self.ray_address)
        require(has_address, "RAY_ADDRESS", self.ray_address, "set where the launcher is ray")
        known = self.log_format in ("console", "json")
        require(known, "PENSTOCK_LOG_FORMAT", self.log_format, "console or json")


def read_config(environ: Environment = os.environ) -> FleetConfig:
    """Build the configuration. Raises ValueError that names the bad or missing variable."""
    return FleetConfig(
        control_url=url(environ, "PENSTOCK_INTERNAL_API_URL"),
        credential=issue(secret(environ, ROOT_VARIABLE), ServiceIdentity("fleet", "fleet")),
        callers=callers_of(environ),
        host=text(environ, "PENSTOCK_FLEET_HOST", "127.0.0.1"),
        port=whole_number(environ, "PENSTOCK_FLEET_PORT", 8704, PORT_MAX),
        directory=Path(text(environ, "PENSTOCK_FLEET_DATA_DIR")).resolve(),
        fleet_id=text(environ, "PENSTOCK_FLEET_ID", DEFAULT_FLEET),
        tokens=ReplicaTokens(newest_first(environ, ROOT_VARIABLE, ROOT_BEFORE_VARIABLE)),
        node=_node(environ),
        launcher=one_of(environ, "PENSTOCK_FLEET_LAUNCHER", LAUNCHERS),
        ray_address=environ.get("RAY_ADDRESS", ""),
        ray_without_token=switch(environ, "PENSTOCK_FLEET_RAY_WITHOUT_TOKEN"),
        replica_port_base=whole_number(environ, "PENSTOCK_REPLICA_PORT_BASE", 8900, PORT_MAX),
        replica_count_max=whole_number(environ, "PENSTOCK_REPLICA_COUNT_MAX", 8, NUMBER_MAX),
        keep_replicas=switch(environ, "PENSTOCK_FLEET_KEEP_REPLICAS", default=True),
        kv_cache_gib=whole_number(environ, "PENSTOCK_KV_CACHE_GIB", 1, NUMBER_MAX),
        grammar_judges_max=whole_number(
            environ, "PENSTOCK_FLEET_GRAMMAR_CHECKERS", _grammar_judges_max(), NUMBER_MAX
        ),
        tier_guarantees=read_guarantees(environ, "PENSTOCK_TIER_GUARANTEES"),
        weights_roots=tuple(
            Path(each) for each in environ.get("PENSTOCK_WEIGHTS_DIRS", "").split(":") if each
        ),
        otlp_endpoint=(environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or "").rstrip("/") or None,
        log_format=text(environ, "PENSTOCK_LOG_FORMAT", "console"),
        timings=_timings(environ),
    )


def _node(environ: Environment) -> NodeConfig:
    host = text(environ, "PENSTOCK_NODE_HOST", "127.0.0.1")
    return NodeConfig(
        host=host,
        address=text(environ, "PENSTOCK_NODE_ADDRESS", host),
        tls_certificate=environ.get("PENSTOCK_NODE_TLS_CERT", ""),
        tls_key=environ.get("PENSTOCK_NODE_TLS_KEY", ""),
    )


def _grammar_judges_max() -> int:
    """Return how many fit into a sixteenth of the machine's memory, at least four."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(4, memory_bytes // 16 // GRAMMAR_JUDGE_BYTES)


def _timings(environ: Environment) -> FleetTimings:
    given: dict[str, float] = {}
    for timing in fields(FleetTimings):
        name = TIMING_PREFIX + timing.name.upper()
        if name in environ:
            try:
                given[timing.name] = float(environ[name])
            except ValueError:
                require(False, name, environ[name], "seconds")
    return FleetTimings(**given)
