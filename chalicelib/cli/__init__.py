"""The `outscaler` command: everything that only a person's machine runs. Nothing imports
it; Lambda gets none of it.

Here: commands/ (one module per sub-command), what several of them use, doctor/, migrate/, advise/,
saved/. Not here: decisions (plan), Lambda entry points (functions).
numpy and boto3 are imported by the commands that need them only, because `outscaler validate`
runs in pre-commit hooks.
"""
