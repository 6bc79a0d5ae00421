"""Huawei Cloud CCE as a provider: each scale group (flavour and AZ) of one cluster's node pools is a node group.

Upstream's provider uses Auto Scaling groups of self-managed clusters. This one uses CCE v3, where a size is the
absolute total of a pool and an omitted field means 0.
"""
