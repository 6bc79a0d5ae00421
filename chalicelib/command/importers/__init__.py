"""Policies made from the configuration of other autoscalers, for `outscaler import`.

Here: input_files.py sorts the content of files by kind; a module per kind reads it; build_policy.py makes one policy. A
setting that cannot be carried over is reported. Not here: the command (command/commands/import_policy.py).
"""
