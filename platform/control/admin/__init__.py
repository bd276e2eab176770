"""What the operator's pages share; each noun's own stand in its room, in `admin.py`."""
