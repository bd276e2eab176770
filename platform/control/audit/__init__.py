"""The audit log: who did what, in a hash chain that reveals changes. Every package above records
its events in its own transaction."""
