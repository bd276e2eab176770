"""How many usage events a second billing books: `python -m tests.benchmarks.ingest`.

A database of its own is made on the server of DATABASE_URL (or on an embedded PostgreSQL with
its default, durable settings) and dropped afterwards. Batches of 5,000 events of 50 organizations
with 200 keys, each event settling one lease; decoding is part of the time.
"""

import argparse
import platform
import random
import time
from datetime import timedelta

import django

from tests.support import postgres
from tests.support.usage_world import World


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--batches", type=int, default=8)
    print(arguments.parse_args())


if __name__ == "__main__":
    main()
