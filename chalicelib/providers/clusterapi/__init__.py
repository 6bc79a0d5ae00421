"""Cluster API: node groups are MachineDeployments, MachineSets and
MachinePools of one CAPI cluster.

Here: sizes through the scale subresource, removals by the delete-machine annotation, templates from
annotations or infrastructure objects. Not here: the connection to the workload cluster (kube).
"""
