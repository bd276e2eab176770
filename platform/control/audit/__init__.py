"""The audit log: who did what, in a hash chain that shows changes. Every service above records its
events in its own transaction."""
