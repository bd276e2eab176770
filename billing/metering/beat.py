"""What recurs in metering, in seconds."""

SCHEDULE = {"make event partitions": {"task": "metering.make_partitions", "schedule": 3600}}
