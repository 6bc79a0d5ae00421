"""Policies made of what other autoscalers were told: `outscaler import`.

sources.py sorts what files hold by kind, one row per kind; addon.py and rules.py say what each means here; assemble.py
makes one policy of them. A further kind (a Cluster Autoscaler's manifest) is a row in sources.py and a module beside
addon.py. What cannot be carried over is told, never dropped in silence.
"""
