"""Fault test: random crashes, broken messages, failing servers and interfering
users on the local emulation.

    dice ─► FaultRun ─► rule (RULES in run_steps.py) ─► FaultWorld: real functions, emulated
    queues, table and cluster
                                                          │  every I/O passes io_interceptor.py,
                                                             where Weather adds
                                                          faults
                                                          ▼
                       Audit: external check of the effects of our requests ── at
                       the end: final_checks.py

`python -m tests.faults.run --seeds 0-99` runs seeds; one seed is one sequence of
steps, equal on every machine.
"""
