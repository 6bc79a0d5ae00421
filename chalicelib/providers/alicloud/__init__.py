"""Alibaba Cloud as a provider: node groups are scaling groups of Auto Scaling (ESS), nodes are ECS instances in them.

A hand-written signed client instead of the vendor's packages, which weigh 46 MB and load for seconds (alicloud.md §7).
"""
