"""Parts of a local run: ports, weights, engine and home folder, from the environment; and
the errors that are meant for the person at the terminal."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.local.state_dir import StateDirectory

ROOT = Path(__file__).resolve().parents[2]
DEMO_WEIGHTS = ROOT / "infra" / "demo_model" / "weights" / "bf16"
DEMO_MODEL_ID = "penstock-demo"
DEMO_EMBEDDER_WEIGHTS = ROOT / "infra" / "demo_embedder" / "weights" / "bf16"
DEMO_EMBEDDER_ID = "penstock-demo-embed"
DEMO_MODEL = str(DEMO_WEIGHTS), DEMO_MODEL_ID
DEMO_EMBEDDER = str(DEMO_EMBEDDER_WEIGHTS), DEMO_EMBEDDER_ID
NO_EMBEDDER, DEMO = "none", "demo"
"""Values of PENSTOCK_EMBEDDING_MODEL: no embedder, and the demo's whether or not it fits."""
PORT_BASE = 8700
REPLICA_COUNT_MAX = 8
GATEWAY_COUNT_MAX = 8
ENGINES = ("vllm", "simulated")
HOME_CHARACTERS_MAX = 80  # the supervisor's socket lies in it, and a socket's path is short
HOST = "127.0.0.1"
OWNER_VARIABLE = "DATABASE_OWNER_URL"
"""The database as its owner: for migrations and archives, in no service's environment."""
ONE_ROLE = (
    "Warning: DATABASE_OWNER_URL is not set, so the services log in as the owner of the tables,"
    " and the database cannot refuse them to alter facts."
)


@dataclass(frozen=True, slots=True)
class Ports:
    """Every port of one run, counted from its base."""

    base: int
    gateway_count: int = 1

    @property
    def control(self) -> int:
        """The console, the admin and the management API."""
        return self.base

    @property
    def gateway(self) -> int:
        """The OpenAI-compatible API."""
        return self.base + 1

    @property
    def control_internal(self) -> int:
        """The internal API, which the data plane calls."""
        return self.base + 2

    @property
    def gateway_operator(self) -> int:
        """Health and metrics of the first gateway."""
        return self.base + 3

    @property
    def gateway_operators(self) -> list[int]:
        """The same of every gateway."""
        others = range(self.base + 18, self.base + 18 + self.gateway_count - 1)
        return [self.gateway_operator, *others]

    @property
    def fleet(self) -> int:
        """The replica feed, health and metrics of the fleet."""
        return self.base + 4

    @property
    def postgres(self) -> int:
        """The embedded PostgreSQL."""
        return self.base + 5

    @property
    def redis(self) -> int:
        """The embedded Redis."""
        return self.base + 6

    @property
    def replicas(self) -> range:
        """The ports that engine replicas may take."""
        return range(self.base + 10, self.base + 10 + REPLICA_COUNT_MAX)

    def named(self) -> dict[str, int]:
        """Return the fixed ports by the name of who listens."""
        return {
            "console": self.control,
            "gateway": self.gateway,
            "control, internal": self.control_internal,
            "gateway, operator": self.gateway_operator,
            **{
                f"gateway-{number}, operator": port
                for number, port in enumerate(self.gateway_operators[1:], start=2)
            },
            "fleet": self.fleet,
            "PostgreSQL": self.postgres,
            "Redis": self.redis,
        }


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """One local run. `weights` are a folder or a Hugging Face id; `embedder_weights` of None: no
    model for embeddings. One that nobody named runs only where it has room."""

    home: Path
    ports: Ports
    engine: str
    weights: str
    model_id: str
    embedder_weights: str | None = None
    embedder_id: str = DEMO_EMBEDDER_ID
    is_embedder_named: bool = False
    database_url: str | None = None
    database_owner_url: str | None = None
    redis_url: str | None = None

    @property
    def has_one_role(self) -> bool:
        """Whether the services log in to the operator's database as the owner of its tables."""
        return self.database_url is not None and self.database_owner_url is None

    @property
    def console_url(self) -> str:
        """The address for a browser."""
        return f"http://{HOST}:{self.ports.control}"

    @property
    def api_base(self) -> str:
        """The base URL for an OpenAI client."""
        return f"http://{HOST}:{self.ports.gateway}/v1"


def read_config(
    environ: Mapping[str, str],
    *,
    engine: str | None = None,
    model: str | None = None,
    gateways: str | None = None,
) -> LocalConfig:
    """Build the configuration; options of the command line win. Raises LocalError."""
    weights, model_id = (
        _model("PENSTOCK_MODEL", model or environ.get("PENSTOCK_MODEL") or "") or DEMO_MODEL
    )
    embedder_weights, embedder_id = _embedder(environ.get("PENSTOCK_EMBEDDING_MODEL") or "")
    home = _home(environ.get("PENSTOCK_HOME") or "")
    database_url, owner_url = (
        environ.get(name) or None for name in ("DATABASE_URL", "DATABASE_OWNER_URL")
    )
    if owner_url is not None and database_url is None:
        raise LocalError("DATABASE_OWNER_URL is set; wanted DATABASE_URL, the application's, too")
    base = environ.get("PENSTOCK_PORT_BASE") or StateDirectory(home).port_base() or str(PORT_BASE)
    return LocalConfig(
        home=home,
        ports=Ports(
            _port_base(base), _gateways(gateways or environ.get("PENSTOCK_GATEWAYS") or "1")
        ),
        engine=_engine(engine or environ.get("PENSTOCK_ENGINE") or ENGINES[0]),
        weights=weights,
        model_id=model_id,
        embedder_weights=embedder_weights,
        embedder_id=embedder_id,
        is_embedder_named=bool(environ.get("PENSTOCK_EMBEDDING_MODEL")),
        database_url=database_url,
        database_owner_url=owner_url,
        redis_url=environ.get("REDIS_URL") or None,
    )


def _default_home() -> Path:
    """Return the checkout's own folder, or the user's where Penstock was installed."""
    is_checkout = (ROOT / "pyproject.toml").exists()
    return (ROOT if is_checkout else Path.home()) / ".penstock"


def _home(value: str) -> Path:
    home = Path(value).expanduser().resolve() if value else _default_home()
    if len(str(home)) > HOME_CHARACTERS_MAX:
        raise LocalError(
            f"PENSTOCK_HOME has {len(str(home))} characters; wanted {HOME_CHARACTERS_MAX} or fewer,"
            f" as sockets lie in it: {home}"
        )
    return home


def _port_base(value: str) -> int:
    if not (value.isascii() and value.isdecimal() and 1024 <= int(value) <= 65_000):
        raise LocalError(f"PENSTOCK_PORT_BASE is {value!r}; wanted a number from 1024 to 65000")
    return int(value)


def _gateways(value: str) -> int:
    if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= GATEWAY_COUNT_MAX):
        raise LocalError(
            f"PENSTOCK_GATEWAYS is {value!r}; wanted a number from 1 to {GATEWAY_COUNT_MAX}"
        )
    return int(value)


def _engine(value: str) -> str:
    if value not in ENGINES:
        raise LocalError(f"PENSTOCK_ENGINE is {value!r}; wanted {' or '.join(ENGINES)}")
    return value


def _embedder(value: str) -> tuple[str | None, str]:
    if value == NO_EMBEDDER:
        return None, DEMO_EMBEDDER_ID
    return _model("PENSTOCK_EMBEDDING_MODEL", "" if value == DEMO else value) or DEMO_EMBEDDER


def _model(name: str, value: str) -> tuple[str, str] | None:
    """Return the weights and the public id of a folder or a Hugging Face id, None of nothing."""
    if not value:
        return None
    folder = Path(value).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise LocalError(f"{name} is {value!r}; wanted a folder with a config.json")
        return str(folder.resolve()), _public_id(folder.resolve().name)
    is_id = re.fullmatch(r"[\w.-]+/[\w.-]+(@[0-9a-f]{40})?", value, re.ASCII)
    if not is_id or value.startswith((".", "/", "~")):
        raise LocalError(
            f"{name} is {value!r}; wanted a folder or a Hugging Face id (owner/name or"
            " owner/name@commit)"
        )
    return value, _public_id(value.partition("@")[0].split("/")[1])


def _public_id(name: str) -> str:
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.") or "model"


class LocalError(Exception):
    """A mistake or a lack the person can mend; the message is one line, shown as it is."""


class StartFailed(LocalError):
    """Something that was started did not come up; its log says why."""
