"""Coverage-guided fuzzing with atheris, a slow tier that no test run includes.

It needs an environment of its own, with `pip install -e '.[local,fuzz]'`, and runs until
its time is over or something breaks: `python -m tests.long.fuzz bodies -max_total_time=600`.
"""
