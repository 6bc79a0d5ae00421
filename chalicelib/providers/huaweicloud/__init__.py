"""Huawei Cloud CCE: the node pools of one cluster, each of their scale groups (flavour and AZ) a node group.

Upstream's provider speaks to Auto Scaling groups of clusters that people built themselves; this one speaks CCE v3,
where a size is the absolute total of a pool and a field that is left out means 0 (huaweicloud-cce.md B4, B10).
"""
