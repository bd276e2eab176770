"""The validation of a variant's resources, and of engine arguments that would contradict them."""

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator

from serving.contract.resources import ACCELERATOR, MIG_SLICE, PARALLEL_MAX, declared_field

WEIGHTS_FLAGS = frozenset(
    {
        "--code-revision", "--config", "--hf-config-path", "--load-format", "--model", "--revision",
        "--tokenizer-revision", "--trust-remote-code",
    }
)  # fmt: skip
"""Arguments that would load other weights than the variant's, or run code that lies beside them."""
PARALLEL_BOUNDS = [MinValueValidator(1), MaxValueValidator(PARALLEL_MAX)]


def check_engine_argument(argument: str) -> None:
    """Raise ValidationError for an argument that belongs to the variant's weights, or that a field
    declares."""
    flag = argument.partition("=")[0].replace("_", "-")
    if flag in WEIGHTS_FLAGS:
        raise ValidationError(
            f"{flag} is set by the platform: it decides which weights are loaded."
        )
    if field := declared_field(argument):
        raise ValidationError(f"{flag} is set by the platform. Set {field} instead.")


def check_accelerator(kind: str) -> None:
    """Raise ValidationError for what is no kind of whole GPUs."""
    if MIG_SLICE.search(kind):
        raise ValidationError("Only whole GPUs are given to replicas, not slices of one (MIG).")
    if not ACCELERATOR.fullmatch(kind):
        raise ValidationError("Name words of the GPU's name, such as H100 or A100 80GB.")
