"""One reconcile pass of one cluster, and the schedule of passes.

Here: reading, planning, saving, sending, recording, in this order. Not here: the decisions (plan)
and the execution of operations.
"""
