"""What the worker and the beat are told."""

from control.celery import app, beat_schedule
from control.feed.models import PublishedChange
from control.tasks import compact_feed


def test_a_task_ends_long_before_the_broker_would_give_it_out_again() -> None:
    app.loader.import_default_modules()
    limit = max(task.time_limit or app.conf.task_time_limit for task in app.tasks.values())
    assert limit * 2 < app.conf.broker_transport_options["visibility_timeout"]
    assert app.conf.task_acks_late


def test_every_scheduled_task_exists() -> None:
    app.loader.import_default_modules()
    missing = [each["task"] for each in beat_schedule().values() if each["task"] not in app.tasks]
    assert missing == []


def test_the_beat_knows_the_schedules_of_all_apps() -> None:
    assert "compact the feed" in app.conf.beat_schedule


def test_compacting_is_a_task(db: None) -> None:
    assert compact_feed() == 0
    assert not PublishedChange.objects.exists()
