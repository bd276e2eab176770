"""Mail: templates in text and HTML, decided in a transaction and delivered by the outbox.

Every layer above may `send_mail`; where mail goes is one setting, EMAIL_URL.
"""
