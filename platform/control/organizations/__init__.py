"""Organizations, their projects and their members. Packages above may call the services and connect
to `signals`; those with data that ends with an organization report it in
`organization_deletion_previewed`."""
