"""Recorded decisions: what a plan was made from, stored so that the plan can be
made again (docs/replay.md).

Here: the form of a recorded decision, its place, and the plan that follows from it.
Not here: the command's output.
"""
