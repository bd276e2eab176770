"""From a body's bytes to a job: `preparation.py` says where, here or beside the loop."""
