"""Emails in text and HTML, stored in a transaction and delivered by the outbox. Every package above
may `send_mail`; one setting, EMAIL_URL, selects the mail server."""
