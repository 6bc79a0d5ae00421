"""Rules between pods, by counting: inter-pod affinity, anti-affinity and topology spread.

Here: the classes that a term selects, the count of their pods per row, and comparisons per topology domain; for new
nodes the comparison is arithmetic. Not here: filters over one node (predicates).
"""
