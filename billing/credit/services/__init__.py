"""What changes credit: grants made and expired, leases granted and settled, usage charged."""
