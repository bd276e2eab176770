"""Organizations, their projects and their members. Packages above may call the services and connect
to `signals`; what ends with an organization says so in `organization_deletion_previewed`."""
