"""What a person may ask about their data: a copy of it, or its end. It knows every noun that holds
something of people; nothing beneath knows it."""
