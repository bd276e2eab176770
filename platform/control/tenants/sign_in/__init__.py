"""How people sign in: what is counted of their tries and when they may try again, which devices are
known, how passwords are hashed, and what of it a person is told and the audit keeps."""
