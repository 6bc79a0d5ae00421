"""Alibaba Cloud as a provider: node groups are scaling groups of Auto Scaling (ESS), nodes are ECS instances in them.

It uses its own signed client because the vendor's packages weigh 46 MB and take seconds to load.
"""
