"""Usage as a question in the URL, a table, a chart of the same numbers, and a CSV file."""
