"""From another autoscaler to Outscaler: `outscaler import`, and `outscaler shadow`.

Here: read_autoscaler.py recognises a form of Cluster Autoscaler's configuration, a reader per form
gives an AutoscalerInput, and autoscaler_policy.py makes the document. cce_policy.py does the same
for Huawei Cloud CCE. A setting that cannot be carried over is reported. Not here: the command
(cli/commands/import_policy.py).
"""
