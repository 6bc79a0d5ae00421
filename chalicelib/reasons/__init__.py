"""Reason codes as text for people.

Here: one sentence per reason code, used by the commands, the journal and the events. Not here: the
decision that has the reason (plan).
"""
