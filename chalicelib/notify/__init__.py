"""Notifications: what is wrong with a cluster, reported once when it begins and once when it ends.

Here: conditions, their state, the forms of messages and their delivery. The tick runs it
(notify/run.py). Not here: metrics and alarms of the deployment itself (infra/aws/alarms.py).
"""
