"""Execution of one operation of a plan: from its message to a vendor's request,
and what its end records.

Here: the runner, the registry of operation kinds, ordering, re-checks and memory updates.
Not here: the decision to operate (plan), a vendor's API (providers), and the functions'
entry points (handlers).
"""
