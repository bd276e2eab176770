"""How the admin shows dates, one folder a language, as Django looks for them."""
