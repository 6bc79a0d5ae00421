"""Consolidation: which needed nodes go because their pods fit a cheaper place, and
whether the saving is worth it.

Here: the price of a disruption, moves and their value, the trial of a move in several orders of the
scheduler, greedy choice, and the programme that looks for the best set of moves. Not here: how a
chosen move is carried out over several passes; limits that hold for all methods
(removal_limits.py).
"""
