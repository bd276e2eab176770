"""Usage and money of the data plane: leases, the meter, the journal, the shipper."""
