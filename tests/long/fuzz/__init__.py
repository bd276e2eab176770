"""Coverage-guided fuzzing with atheris, which `python -m tests.long.parts fuzz` installs.

One target runs until its time is over or something breaks:
`PYTHONPATH=test-results/parts/fuzz/packages python -m tests.long.fuzz bodies -max_total_time=600`.
"""
