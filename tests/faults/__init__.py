"""The fault test: random crashes, broken messages, failing servers and meddling users over the local emulation.

    dice ─► Machine ─► rule (RULES in rules.py) ─► FaultWorld: the real functions, emulated queues, table and cluster
                                                     │  every I/O passes a gate (gate.py), where the Weather strikes
                                                     ▼
                      Audit: what our requests did, judged from outside ── at the end: ending.py

`python -m tests.faults.run --seeds 0-99` plays seeds; one seed is one sequence of steps, the same on every machine.
"""
