"""Models, variants, quality reports, deployments and failures of their replicas."""

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from control.accounts.models import NAME_MAX
from control.catalog.external_servers import check_server_url, check_unique
from control.catalog.fleet_status import FleetStatus
from control.catalog.resources import (
    PARALLEL_BOUNDS,
    check_accelerator,
    check_engine_argument,
)
from control.db.models import ID_MAX, new_id
from control.organizations.models import REGION_FORM, REGION_MAX, Organization
from serving.contract.environment import IDENTIFIER
from serving.contract.records import DEFAULT_FLEET
from serving.contract.replica import ISOLATING, State
from serving.contract.weights import weights_source

PUBLIC_ID_MAX = 100
FAILURE_REASON_MAX = 500
# The values that gateways accept (`serving.contract.units`).
ID_FORM = RegexValidator(r"^[A-Za-z0-9_.:-]+\Z", "An id has letters, digits and _ . : - only.")
DIGEST_FORM = RegexValidator(r"^[0-9a-f]{64}\Z", "A digest is 64 hexadecimal digits (SHA-256).")
FLEET_ID_FORM = RegexValidator(
    rf"^{IDENTIFIER.pattern}\Z", "A fleet's ID has letters, digits, _ and -."
)
CREDENTIAL_NAME_MAX = 40
COUNT_BOUNDS = [MaxValueValidator(10**9)]
SECONDS_BOUNDS = [MinValueValidator(0.0), MaxValueValidator(10.0**7)]


def new_model_id() -> str:
    return new_id("mdl")


def new_variant_id() -> str:
    return new_id("var")


def new_report_id() -> str:
    return new_id("qual")


def new_deployment_id() -> str:
    return new_id("dep")


def check_weights_source(weights: str) -> None:
    """Raise ValidationError for weights that no fleet could load, with what to write instead."""
    try:
        weights_source(weights)
    except ValueError as error:
        raise ValidationError(str(error)) from error


class Task(models.TextChoices):
    """The task of a model, named as in the contracts."""

    GENERATE = "generate", _("Text")
    EMBED = "embed", _("Embeddings")


class Model(models.Model):
    """A model that customers use by name. `organization_ids` of None opens it to everyone; its task
    never changes."""

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_model_id)
    public_id = models.CharField(max_length=PUBLIC_ID_MAX, unique=True)
    name = models.CharField(max_length=NAME_MAX)
    description = models.TextField(blank=True)
    task = models.CharField(max_length=16, choices=Task, default=Task.GENERATE)
    default_variant = models.OneToOneField(
        "Variant", models.PROTECT, null=True, blank=True, related_name="default_of"
    )
    organization_ids = ArrayField(
        models.CharField(max_length=ID_MAX, validators=[ID_FORM]), null=True, blank=True
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "catalog_model"
        ordering = ["public_id"]

    def __str__(self) -> str:
        return self.public_id

    @property
    def is_open_to_all(self) -> bool:
        """Whether every organization may use it."""
        return self.organization_ids is None

    @property
    def makes_embeddings(self) -> bool:
        """Whether its responses are vectors, which have no output tokens."""
        return self.task == Task.EMBED


class Variant(models.Model):
    """One set of weights in one precision. Customers may use it once it is published; a quantized
    one (with a `parent`) needs a quality report for that. `dimensions` is the length of the vectors
    of a model for embeddings.

    Its weights never change. `weights_digest` identifies their content
    (`serving.engine.weights.weights_digest`): declared by an operator or found by the first load,
    empty until then, and fixed from then on.
    """

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_variant_id)
    model = models.ForeignKey(Model, models.PROTECT, related_name="variants")
    precision = models.CharField(max_length=16, help_text=_("bf16, fp8, int8, int4, …"))
    weights = models.CharField(
        max_length=200,
        validators=[check_weights_source],
        help_text=_(
            "A folder on the fleet's host, a Hugging Face ID with its commit (owner/name@commit),"
            " an s3://, gs:// or az:// URL, or the model's name on an external server. It never"
            " changes."
        ),
    )
    weights_digest = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        validators=[DIGEST_FORM],
        help_text=_(
            "SHA-256 of the weights' files. Leave it empty to take that of the first load; after"
            " that it never changes."
        ),
    )
    parent = models.ForeignKey(
        "self", models.PROTECT, null=True, blank=True, related_name="quantized"
    )
    engine_arguments = ArrayField(
        models.CharField(max_length=200, validators=[check_engine_argument]),
        default=list,
        blank=True,
    )
    accelerator = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        validators=[check_accelerator],
        help_text=_(
            "Words of the name of the GPUs, such as H100 or A100 80GB; GPU for any. A replica takes"
            " tensor × pipeline parallel size of them. Leave it empty for a CPU."
        ),
    )
    tensor_parallel_size = models.PositiveIntegerField(
        default=1, db_default=1, validators=PARALLEL_BOUNDS
    )
    pipeline_parallel_size = models.PositiveIntegerField(
        default=1, db_default=1, validators=PARALLEL_BOUNDS
    )
    capabilities = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    context_tokens = models.PositiveIntegerField(validators=COUNT_BOUNDS)
    output_tokens_max = models.PositiveIntegerField(validators=COUNT_BOUNDS)
    vocabulary_size = models.PositiveIntegerField(validators=COUNT_BOUNDS)
    dimensions = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=COUNT_BOUNDS,
        help_text=_("Length of the vectors of an embedding model."),
    )
    parameter_count = models.PositiveBigIntegerField(null=True, blank=True)
    size_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    published_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "catalog_variant"
        ordering = ["created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["model", "precision"],
                name="live_precision_is_unique",
                condition=Q(archived_at__isnull=True),
                violation_error_message="The model has a variant of this precision.",
            ),
            models.CheckConstraint(
                condition=Q(output_tokens_max__gte=1, output_tokens_max__lte=F("context_tokens")),
                name="output_fits_context",
            ),
            models.CheckConstraint(
                condition=Q(dimensions__isnull=True) | Q(dimensions__gte=1),
                name="dimensions_are_positive",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model.public_id}:{self.precision}"

    def clean(self) -> None:
        """Refuse an embedding variant without `dimensions`, and `dimensions` for any other."""
        if self.model_id is None:
            return  # the field reports this error itself
        if self.model.makes_embeddings and self.dimensions is None:
            raise ValidationError({"dimensions": "A model for embeddings has a length of vectors."})
        if not self.model.makes_embeddings and self.dimensions is not None:
            raise ValidationError({"dimensions": "Only a model for embeddings has one."})

    @property
    def is_default(self) -> bool:
        """Whether the model's own name means this variant."""
        return self.model.default_variant_id == self.id

    @property
    def is_archived(self) -> bool:
        """Whether it can be neither deployed nor published again."""
        return self.archived_at is not None

    @property
    def latest_report(self) -> "QualityReport | None":
        """The newest quality report of these weights; for lists, prefetch `quality_reports`."""
        reports = self.quality_reports.all()
        return next((one for one in reports if one.weights_digest == self.weights_digest), None)


class QualityReport(models.Model):
    """The result of an evaluation; of a variant, the newest one with its weights' digest counts.

    `document` is the report as the evaluation wrote it; the columns hold what lists and charts
    need; `skills` holds accuracy by skill with its 95 % interval.
    """

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_report_id)
    variant = models.ForeignKey(Variant, models.PROTECT, related_name="quality_reports")
    weights_digest = models.CharField(
        max_length=64, blank=True, default="", db_default="", validators=[DIGEST_FORM]
    )
    """The digest of the evaluated weights; empty while the variant has none."""
    document = models.JSONField()
    question_count = models.PositiveIntegerField(null=True, blank=True)
    accuracy = models.FloatField(null=True, blank=True)
    accuracy_low = models.FloatField(null=True, blank=True)
    accuracy_high = models.FloatField(null=True, blank=True)
    perplexity = models.FloatField(null=True, blank=True)
    size_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    tokens_per_second = models.FloatField(null=True, blank=True)
    skills = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "catalog_quality_report"
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(accuracy__isnull=True) | Q(accuracy__gte=0, accuracy__lte=1),
                name="accuracy_is_a_share",
            )
        ]

    def __str__(self) -> str:
        return f"{self.variant} of {self.created_at:%Y-%m-%d}"


class Fleet(models.Model):
    """The owner of its deployments' replicas: a process on one host or a cluster, named by
    PENSTOCK_FLEET_ID. Its `region` is where requests are processed, empty if nobody said.

    Control grants each of its lives a `generation`, and hears only those of the folder that
    registered last (`instance_id`, at `registered_at`). It belongs to the credential that
    registered it first.
    """

    id = models.CharField(
        _("ID"),
        primary_key=True,
        max_length=ID_MAX,
        validators=[FLEET_ID_FORM],
        help_text=_("PENSTOCK_FLEET_ID of its processes. It never changes."),
    )
    name = models.CharField(max_length=NAME_MAX)
    region = models.CharField(
        max_length=REGION_MAX,
        blank=True,
        default="",
        validators=[REGION_FORM],
        help_text=_("Where requests are processed, such as eu-west. Empty if it is not known."),
    )
    generation = models.PositiveBigIntegerField(default=0)
    instance_id = models.CharField(max_length=ID_MAX, blank=True, default="")
    credential_name = models.CharField(max_length=CREDENTIAL_NAME_MAX, blank=True, default="")
    registered_at = models.DateTimeField(_("registered"), null=True, blank=True)
    heard_at = models.DateTimeField(_("last heard"), null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "catalog_fleet"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Engine(models.TextChoices):
    """The engine that serves the weights."""

    VLLM = "vllm", _("vLLM")
    SIMULATED = "simulated", _("Simulated")
    EXTERNAL = "external", _("External")


STARTING: frozenset[State] = frozenset({"pending", "loading", "canary"})


class DeploymentState(models.TextChoices):
    """Whether a deployment serves requests."""

    READY = "ready", _("Ready")
    LOADING = "loading", _("Loading")
    ASLEEP = "asleep", _("Asleep")
    FAILED = "failed", _("Failed")
    STOPPED = "stopped", _("Stopped")
    ENDED = "ended", _("Ended")
    UNKNOWN = "unknown", _("Unknown: the fleet does not respond")

    @property
    def is_serving(self) -> bool:
        """Whether requests are served or wake a replica; assumed while the fleet does not
        respond."""
        return self in {self.READY, self.ASLEEP, self.UNKNOWN}


class Deployment(models.Model):
    """The desired state of running a variant; `replicas_min` of 0 stops it. Timeouts are in
    seconds. Its fleet never changes: replicas have one owner.

    A deployment that may sleep (`sleep_after_seconds`) has no replica while there are no requests,
    and the next request wakes it; a request does not wake a stopped one. `hourly_cost_nanos` is
    what one replica costs the operator per hour, None if unknown.
    """

    id = models.CharField(primary_key=True, max_length=ID_MAX, default=new_deployment_id)
    variant = models.ForeignKey(Variant, models.PROTECT, related_name="deployments")
    fleet: models.ForeignKey[Fleet | str, Fleet] = models.ForeignKey(
        Fleet,
        models.PROTECT,
        related_name="deployments",
        default=DEFAULT_FLEET,
        db_default=DEFAULT_FLEET,
    )
    engine = models.CharField(max_length=16, choices=Engine, default=Engine.VLLM)
    replicas_min = models.PositiveIntegerField(default=0, validators=COUNT_BOUNDS)
    replicas_max = models.PositiveIntegerField(default=1, validators=COUNT_BOUNDS)
    slots = models.PositiveIntegerField(
        default=32, validators=COUNT_BOUNDS, help_text=_("Concurrent sequences per replica.")
    )
    reserved_share = models.FloatField(
        default=0.1,
        help_text=_("Share of all slots kept free for each tier whose clients wait, while in use."),
    )
    engine_arguments = ArrayField(
        models.CharField(max_length=200, validators=[check_engine_argument]),
        default=list,
        blank=True,
    )
    external_urls = ArrayField(
        models.CharField(max_length=200, validators=[check_server_url]), default=list, blank=True
    )
    dedicated_to = models.ForeignKey(
        Organization, models.PROTECT, null=True, blank=True, related_name="deployments"
    )
    connect_seconds = models.FloatField(default=2.0, validators=SECONDS_BOUNDS)
    first_byte_seconds = models.FloatField(default=60.0, validators=SECONDS_BOUNDS)
    gap_seconds = models.FloatField(default=30.0, validators=SECONDS_BOUNDS)
    total_seconds = models.FloatField(default=600.0, validators=SECONDS_BOUNDS)
    queue_seconds = models.FloatField(default=30.0, validators=SECONDS_BOUNDS)
    wake_seconds = models.FloatField(
        default=0.0,
        validators=SECONDS_BOUNDS,
        help_text=_("How long to wait for a starting replica if none is ready. 0: refuse at once."),
    )
    sleep_after_seconds = models.FloatField(
        default=0.0,
        validators=SECONDS_BOUNDS,
        help_text=_(
            "After so long without a request, all replicas stop until there is one. 0: never."
        ),
    )
    hourly_cost_nanos = models.BigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "catalog_deployment"
        ordering = ["created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(replicas_max__gte=F("replicas_min")), name="replicas_max_not_below_min"
            ),
            models.CheckConstraint(condition=Q(slots__gte=1), name="slots_are_positive"),
            models.CheckConstraint(
                condition=Q(reserved_share__gte=0, reserved_share__lte=1),
                name="reserved_share_is_a_part",
            ),
            models.CheckConstraint(
                condition=Q(sleep_after_seconds=0)
                | Q(sleep_after_seconds__gt=0, wake_seconds__gt=0) & ~Q(engine=Engine.EXTERNAL),
                name="sleeps_only_where_it_is_waited_for",
                violation_error_message="Only a deployment that requests wait for (wake_seconds)"
                " and whose replicas are ours may sleep.",
            ),
            models.CheckConstraint(
                condition=Q(hourly_cost_nanos__isnull=True) | Q(hourly_cost_nanos__gte=0),
                name="hourly_cost_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.variant} on {self.engine}"

    @property
    def is_stopped(self) -> bool:
        """Whether nobody wants it to run: a request does not wake it."""
        return self.replicas_min == 0

    @property
    def is_ended(self) -> bool:
        """Whether it can never run again."""
        return self.ended_at is not None

    def state(self, fleet: FleetStatus) -> DeploymentState:
        """Return whether it serves requests, by what is wanted and what the fleet reports. A ready
        replica counts before those that are still loading, and these before failed ones."""
        if self.is_ended:
            return DeploymentState.ENDED
        if self.is_stopped:
            return DeploymentState.STOPPED
        if not fleet.is_known(str(self.fleet_id)):
            return DeploymentState.UNKNOWN
        states = {replica.state for replica in fleet.of(self.id)}
        if "ready" in states:
            return DeploymentState.READY
        if "asleep" in states:
            return DeploymentState.ASLEEP
        is_failed = "failed" in states and not states & STARTING
        return DeploymentState.FAILED if is_failed else DeploymentState.LOADING

    def clean(self) -> None:
        """Refuse a server that is named twice, and an external server that organizations share,
        unless it isolates them."""
        try:
            check_unique(self.external_urls)
        except ValidationError as error:
            raise ValidationError({"external_urls": error.messages}) from error
        is_shared = self.engine == Engine.EXTERNAL and self.dedicated_to_id is None
        if is_shared and ISOLATING.isdisjoint(self.engine_arguments):
            wanted = " or ".join(sorted(ISOLATING))
            message = f"An external server declares {wanted} here, or is dedicated to one."
            raise ValidationError({"engine_arguments": message})


class ReplicaFailure(models.Model):
    """A replica that failed, and why; kept after the fleet has forgotten it."""

    replica_id = models.CharField(primary_key=True, max_length=ID_MAX)
    deployment = models.ForeignKey(Deployment, models.PROTECT, related_name="failures")
    reason = models.CharField(max_length=FAILURE_REASON_MAX)
    started_at = models.DateTimeField()
    noticed_at = models.DateTimeField()

    class Meta:
        db_table = "catalog_replica_failure"
        ordering = ["-noticed_at"]

    def __str__(self) -> str:
        return self.replica_id
