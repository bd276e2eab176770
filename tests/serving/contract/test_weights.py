"""Sources of weights: what can be loaded, and what to write in place of what cannot."""

import pytest

from serving.contract.weights import weights_source

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("weights", "source"),
    [
        ("/srv/weights/large", ("folder", "/srv/weights/large", "")),
        ("./weights", ("folder", "./weights", "")),
        (f"owner/name@{COMMIT}", ("hub", "owner/name", COMMIT)),
        ("s3://bucket/path/large", ("object_storage", "s3://bucket/path/large", "")),
        ("gs://bucket/large/", ("object_storage", "gs://bucket/large/", "")),
        ("az://container/large", ("object_storage", "az://container/large", "")),
        ("llama3.1:8b", ("name", "llama3.1:8b", "")),
        ("owner/name", ("name", "owner/name", "")),
    ],
)
def test_each_kind_of_source_is_known(weights: str, source: tuple[str, str, str]) -> None:
    found = weights_source(weights)
    assert found == source
    assert found.is_loadable is (found.kind != "name")


@pytest.mark.parametrize(
    ("weights", "advice"),
    [
        ("owner/name@main", "main is not a commit.*owner/name@COMMIT.*git ls-remote"),
        (f"owner/name@{COMMIT[:12]}", "not a commit"),
        ("owner/name@", "not a commit"),
        (f"a/b/c@{COMMIT}", "not a Hugging Face id"),
        ("https://example.com/weights", "https:// is not supported"),
        ("file:///srv/weights", "file:// is not supported"),
        ("s3://key:secret@bucket/path", "without credentials"),
        ("s3://bucket", "a bucket and a path"),
        ("s3://bucket/../other", "a bucket and a path"),
        ("s3://bucket/path?versionId=1", "a bucket and a path"),
    ],
)
def test_what_can_move_or_be_exchanged_is_refused(weights: str, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        weights_source(weights)
