"""Time arithmetic of policies: cron expressions, maintenance windows, schedules and their overlaps.

Here: pure functions of an instant that both the policy reader and the planner need. Not here: which
operation a due rule causes (plan).
"""
