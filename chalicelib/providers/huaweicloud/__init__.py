"""Huawei Cloud CCE: each scale group (flavor and AZ) of the node pools of one
cluster is a node group.

Here: CCE API v3, where a size is the absolute total of a pool and an omitted field means 0.
Not here: the names of its settings in the policy (policy/vendors/huaweicloud.py).
"""
