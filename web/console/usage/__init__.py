"""Usage: a query in the URL, shown as a chart, a table and a CSV file."""
