"""Scale-down: which nodes are unneeded, which of them go now, and what blocks the others.

Here: eligibility, drain rules, removal simulation, timers, selection, the circuit breaker. Not here: the drain
itself (operations).
"""
