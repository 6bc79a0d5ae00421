"""Cluster API as a provider: node groups are MachineDeployments, stand-alone MachineSets and MachinePools of one CAPI
cluster.

Groups are discovered by annotations and labels, sizes are set through the scale subresource, Machines are removed by
the delete-machine annotation, and templates are built from annotations and infrastructure objects
(docs/providers/clusterapi.md).
"""
