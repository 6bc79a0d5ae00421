"""Clusters saved as files.

Here: what a capture writes, reading it back, drafts of its node groups. Not here: the commands
(cli/commands), reading a live cluster (snapshot).
"""
