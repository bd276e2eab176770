"""Dates that sort, and moments with their zone: all of the platform's are UTC."""

DATE_FORMAT = "Y-m-d"
DATETIME_FORMAT = r"Y-m-d H:i \U\T\C"
