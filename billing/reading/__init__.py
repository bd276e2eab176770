"""What was used, and what did it cost? Sums, requests, receipts and exports for the console and the
management API, one organization at a time. It reads what metering and following wrote, and has no
rows of its own."""
