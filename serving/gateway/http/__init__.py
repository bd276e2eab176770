"""What clients' connections bring before HTTP is spoken. The gateway's listener alone calls it."""
