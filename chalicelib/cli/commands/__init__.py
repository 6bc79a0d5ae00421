"""The subcommands of `outscaler`, a module each.

Here: add_arguments(parser) and run(args) -> exit code of each. Not here: their table
(cli/main.py), what several of them use (command/).
"""
