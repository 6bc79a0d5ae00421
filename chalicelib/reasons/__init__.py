"""Reasons as text for people, and the words that everything that speaks has in common.

Here: a reason's parameters put into its texts, for the commands, the journal and the events. Not
here: the texts (model/reason.py), the decision that has the reason (plan).
"""
