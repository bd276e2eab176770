"""The change feed: the catalog, prices, organizations and keys that gateways and the fleet know.
Services publish records in their own transaction; readers poll `views`."""
