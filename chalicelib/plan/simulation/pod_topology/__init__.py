"""Rules between pods: inter-pod affinity, anti-affinity and topology spread (scale-up.md §5.3, §5.4), by counting.

Which classes a term selects is asked once per pass (matching); how many of their pods are on each row is kept as one
vector per set of classes (counting); a rule is then a comparison of sums per domain (rows), and on nodes that do not
exist yet arithmetic (fresh).
"""
