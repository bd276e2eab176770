"""What customers can be told, and in which words the console offers it."""

KINDS = {
    "balance.low": "The balance fell below a threshold.",
    "budget.reached": "Spending reached a share of a limit.",
    "spend.unusual": "Spending is far above the usual.",
    "invoice.finalized": "An invoice was issued.",
    "invoice.paid": "An invoice was paid in full.",
    "payment.failed": "A payment was declined.",
    "key.created": "An API key was created.",
}
TEST = "webhook.test"
"""What the test button sends; nobody subscribes to it."""
