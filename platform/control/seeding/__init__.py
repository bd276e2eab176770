"""What a fresh platform begins with. Everything may be repeated and is then left as it is."""
