"""Where a variant's weights come from, as one string: a folder on the fleet's host, a Hugging Face
id pinned to a commit, or a URL of object storage. Any other name is what an external server calls
its model; no fleet can load it."""

import re
from typing import Literal, NamedTuple

WeightsKind = Literal["folder", "hub", "object_storage", "name"]
SCHEMES = ("s3", "gs", "az")
"""The object storage that vLLM's streaming loader reads, in fsspec's URLs."""
COMMIT = re.compile(r"[0-9a-f]{40}")
BUCKET_PATH = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._=+-]+)+/?")
HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")


class WeightsSource(NamedTuple):
    """The place of some weights; `revision` is the commit of a Hugging Face id, else empty."""

    kind: WeightsKind
    location: str
    revision: str = ""

    @property
    def is_loadable(self) -> bool:
        """Whether a fleet can load it, and its content cannot be exchanged by a moved branch."""
        return self.kind != "name"


def weights_source(weights: str) -> WeightsSource:
    """Return the source that a variant names. Raises ValueError, with what to write instead."""
    if weights.startswith(("/", "./", "../")):
        return WeightsSource("folder", weights)
    scheme, separator, path = weights.partition("://")
    if separator:
        if scheme not in SCHEMES:
            known = ", ".join(f"{each}://" for each in SCHEMES)
            raise ValueError(f"{scheme}:// is not supported. Use a folder, {known} or an id.")
        if not BUCKET_PATH.fullmatch(path) or ".." in path.split("/"):
            raise ValueError(f"{scheme}:// takes a bucket and a path, without credentials.")
        return WeightsSource("object_storage", weights)
    name, at, revision = weights.partition("@")
    if not at:
        return WeightsSource("name", weights)
    if not HUB_ID.fullmatch(name):
        raise ValueError(f"{name or 'The name'} is not a Hugging Face id, such as owner/name.")
    if not COMMIT.fullmatch(revision):
        raise ValueError(f"{revision or 'The revision'} is not a commit. {how_to_pin(name)}")
    return WeightsSource("hub", name, revision)


def how_to_pin(name: str) -> str:
    """Return how to find the commit of a Hugging Face id."""
    return (
        f"Branches and tags can move, so name a commit of 40 hexadecimal digits: {name}@COMMIT."
        f" `git ls-remote https://huggingface.co/{name}` lists the commits of all branches."
    )
