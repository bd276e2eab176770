"""Date formats of the admin, one folder a language, as Django looks for them."""
