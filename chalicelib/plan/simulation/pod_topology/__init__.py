"""Rules between pods: inter-pod affinity, anti-affinity and topology spread, computed from counters.

Which classes a term selects is computed once per pass (selector_index). The number of their pods on each row is kept as
one vector per set of classes (pod_counts). A rule is then a comparison of sums per domain (existing_nodes), and on
nodes that do not exist yet arithmetic (new_nodes).
"""
