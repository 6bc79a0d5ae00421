"""Converts the configuration of other autoscalers into policies: `outscaler import`.

input_files.py sorts the content of files by kind, one row per kind; cce_addon.py and hna_rules.py convert each kind;
build_policy.py combines them into one policy. A further kind (a Cluster Autoscaler's manifest) is a row in
input_files.py and a further converter module. Settings that cannot be converted are reported, never dropped silently.
"""
