"""The change feed: what gateways and the fleet know of the catalog, prices, organizations and keys.
Services publish records in their own transaction; readers poll `views`."""
