"""What changes invoicing: months closed, invoices settled and corrected, profiles edited."""
