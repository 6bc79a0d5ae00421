"""Cluster API as a provider: node groups are MachineDeployments and stand-alone MachineSets of one CAPI cluster.

First version: discovery, sizes through the scale subresource, removal by the delete-machine annotation, templates from
annotations (clusterapi.md §1-§6). It reads no infrastructure objects, scales no MachinePools and expects the objects in
the same cluster as the Nodes.
"""
