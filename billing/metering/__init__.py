"""Usage facts: accepted once, rated, booked, rolled up and shown."""
