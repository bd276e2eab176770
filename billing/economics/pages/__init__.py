"""The operator's pages on margin and reconciliation: a question in the URL, a table, a chart."""
