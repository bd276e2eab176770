"""Whatever a feed tells, a directory answers as plain dictionaries would, and a start from disk
knows what was known at a version that was saved."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract.feed import RECORD_OF_KIND, FeedPage
from serving.contract.records import OrganizationRecord, ProjectRecord
from serving.feed.changes import ChangeBatch
from serving.feed.state_store import StateFile
from serving.gateway.directory import Directory
from tests.fixtures import catalog
from tests.fixtures.state import Told, batches, page, read_as_if_killed

State = dict[tuple[str, str], Any]
NOW = catalog.START + timedelta(days=5)
ORIGINS = ("https://one.example", "https://two.example")
BAD = {"schema": 99}


def digest_of(key: str, number: int) -> str:
    return catalog.digest(f"{key}{number}", b"pepper")


def organizations() -> Iterator[Told]:
    for name in "ab":
        for status in ("active", "suspended"):
            record = OrganizationRecord(f"org_{name}", status, (f"balance:org_{name}",), "salt")
            yield "organization", f"org_{name}", record


def projects() -> Iterator[Told]:
    for name in "ab":
        for owner in "ab":
            for status, origins in (("active", ORIGINS), ("active", ()), ("archived", ORIGINS[:1])):
                record = ProjectRecord(
                    f"proj_{name}", f"org_{owner}", (), status, allowed_origins=origins
                )
                yield "project", f"proj_{name}", record


def keys() -> Iterator[Told]:
    for name in "abc":
        for number in range(2):
            for home in "ab":
                key = msgspec.structs.replace(
                    catalog.tenant(home).key,
                    key_id=f"key_{name}",
                    digest=digest_of(name, number),
                    networks=("10.0.0.0/8",) if number else None,
                    expires_at=NOW if number else None,
                )
                yield "api_key", f"key_{name}", key


def offers() -> Iterator[Told]:
    for name in ("one", "two"):
        yield "model", f"var_{name}", catalog.model(f"var_{name}", name)
        yield "model", f"var_{name}", catalog.model(f"var_{name}", f"{name}-renamed")
        for owner in (None, "org_a"):
            for variant in ("var_one", "var_two"):
                record = msgspec.structs.replace(
                    catalog.deployment(variant, dedicated_to=owner), deployment_id=f"dep_{name}"
                )
                yield "deployment", f"dep_{name}", record


def prices() -> Iterator[Told]:
    for number in range(3):
        at = catalog.START + timedelta(days=number)
        for variant in ("var_one", "var_two"):
            record = catalog.price(variant, price_id=f"p{number}", effective_at=at)
            yield "price", f"p{number}", record
            own = catalog.contract_price(
                "org_a", price_id=f"p{number}", effective_at=at, variant_id=variant
            )
            yield "contract_price", f"p{number}", own


GOOD: list[Told] = [*organizations(), *projects(), *keys(), *offers(), *prices()]
NAMED = sorted({told[:2] for told in GOOD})
CHANGES = st.lists(
    st.one_of(
        st.sampled_from(GOOD),
        st.sampled_from([(*named, None) for named in NAMED]),
        st.sampled_from([(*named, BAD) for named in NAMED]),
    ),
    max_size=12,
)
RECORDS = st.lists(
    st.one_of(st.sampled_from(GOOD), st.sampled_from([(*named, BAD) for named in NAMED])),
    max_size=30,
    unique_by=lambda told: told[:2],
)


@dataclass(frozen=True)
class Step:
    """What a feed tells next: changes, or a snapshot, which may break off."""

    told: list[Told]
    is_snapshot: bool
    breaks_off: bool = False


STEPS = st.lists(
    st.one_of(
        st.builds(Step, CHANGES, st.just(False)),
        st.builds(Step, RECORDS, st.just(True), st.booleans()),
    ),
    min_size=1,
    max_size=6,
)


@dataclass
class Model:
    """Plain dictionaries."""

    state: State = field(default_factory=dict)

    def take(self, step: Step) -> None:
        named = {told[:2] for told in step.told}
        for kind, id_, record in step.told:
            if record is None:
                self.state.pop((kind, id_), None)
            elif record is not BAD:
                self.state[kind, id_] = record
        if step.is_snapshot and not step.breaks_off:
            self.state = {key: record for key, record in self.state.items() if key in named}

    def of(self, kind: str) -> list[Any]:
        return [record for (each, _), record in self.state.items() if each == kind]

    def principal(self, digest: str) -> Any:
        for key in self.of("api_key"):
            organization = self.state.get(("organization", key.organization_id))
            project = self.state.get(("project", key.project_id))
            if key.digest != digest or organization is None or project is None:
                continue
            if project.status == "active" and project.organization_id == key.organization_id:
                return key, project, organization
        return None

    def schedule(self, variant: str, organization_id: str) -> str | None:
        own = [
            price
            for price in self.of("contract_price")
            if (price.variant_id, price.organization_id) == (variant, organization_id)
        ]
        listed = [price for price in self.of("price") if price.variant_id == variant]
        newest = sorted(own or listed, key=lambda price: price.effective_at)
        return newest[-1].price_id if newest else None

    def deployments(self, variant: str, organization_id: str) -> set[str]:
        return {
            each.deployment_id
            for each in self.of("deployment")
            if each.variant_id == variant and each.dedicated_to in (None, organization_id)
        }


def compare(directory: Directory, model: Model) -> None:
    for name in "abc":
        for number in range(2):
            digest = digest_of(name, number)
            for _ in range(2):  # made, and remembered
                found = directory.principal(digest)
                known = found and (found.key, found.project, found.organization)
                assert known == model.principal(digest)
    names = {name: each for each in model.of("model") for name in (each.public_id, *each.aliases)}
    for name in ("one", "one:bf16", "one-renamed", "two", "two-renamed:bf16"):
        assert directory.model(name, "org_a") == names.get(name)
    assert {each.variant_id for each in directory.models("org_a")} == {
        each.variant_id for each in model.of("model")
    }
    assert directory.request_tokens_max == (512 if model.of("model") else 0)
    for variant in ("var_one", "var_two"):
        for organization_id in ("org_a", "org_b"):
            schedule = directory.schedule(variant, organization_id, NOW)
            theirs = schedule and schedule[0].price_id
            assert theirs == model.schedule(variant, organization_id)
            organization = OrganizationRecord(organization_id, "active", (), "salt")
            places = directory.deployments(variant, organization)
            assert {each.deployment_id for each in places} == model.deployments(
                variant, organization_id
            )
    allowed = {
        origin
        for project in model.of("project")
        if project.status == "active"
        for origin in project.allowed_origins
    }
    assert {origin for origin in ORIGINS if directory.is_allowed_somewhere(origin)} == allowed


def told(version: int, step: Step) -> list[ChangeBatch]:
    """Return a step as a follower hands it on: in parts, a snapshot in two pages."""
    half = len(step.told) // 2 if step.is_snapshot else 0
    pages = [page(version, *step.told[half:], snapshot=step.is_snapshot)]
    if half or step.breaks_off:
        pages.insert(0, page(version, *step.told[:half], cursor="more"))
    if step.breaks_off:
        pages[1] = FeedPage(version, True, pages[1].changes, "one", "more")
    return [
        batch for number, each in enumerate(pages) for batch in batches(each, begins=number == 0)
    ]


def possible(steps: list[Step]) -> list[Step]:
    """After a snapshot that broke off only another one comes."""
    followed: list[Step] = []
    for step in steps:
        if step.is_snapshot or not followed or not followed[-1].breaks_off:
            followed.append(step)
    return followed


@settings(max_examples=50, deadline=None)
@given(steps=STEPS, unsaved=st.integers(0, 8), saved=st.integers(0, 20))
def test_a_directory_answers_as_dictionaries_would_and_so_does_what_was_saved(
    steps: list[Step], unsaved: int, saved: int
) -> None:
    directory, model = Directory("salt-secret"), Model()
    # A disk knows nothing of what broke off.
    whole, at_version, written = Model(), {0: {}}, list[ChangeBatch]()
    with patch("serving.feed.changes.PART_CHANGES", 3):
        for version, step in enumerate(possible(steps), 1):
            for batch in told(version, step):
                directory.apply(batch)
                written.append(batch)
            model.take(step)
            if not step.breaks_off:
                whole.take(step)
                at_version[version] = dict(whole.state)
            if directory.mirror.version:
                compare(directory, model)
        with tempfile.TemporaryDirectory() as folder:
            check_disk(Path(folder), at_version, written[: len(written) - unsaved])
            check_disk(Path(folder), at_version, written[:saved])


def check_disk(folder: Path, at_version: dict[int, State], written: list[ChangeBatch]) -> None:
    """Write batches, be killed, and start: exactly the last version that was written is known."""
    path = folder / f"{len(list(folder.iterdir()))}.sqlite3"
    file = StateFile(path, RECORD_OF_KIND)
    for batch in written:
        file.write([batch])
    found = read_as_if_killed(path, folder / f"killed-{path.name}")
    file.close()
    durable = max((batch.version for batch in written if batch.is_last), default=0)
    assert found.place.version == durable
    assert found.is_whole == (durable > 0)
    assert found.records == at_version[durable]
