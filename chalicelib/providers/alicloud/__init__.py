"""Alibaba Cloud: node groups are scaling groups of Auto Scaling (ESS), nodes
are ECS instances in them.

Here: a signed client and the Provider protocol over it; the vendor's packages weigh 46 MB and take
seconds to load. Not here: the names of its settings in the policy (policy/vendors/alicloud.py).
"""
