"""What the pages of the management API share; each noun's own stand in its room, in `api.py`."""
