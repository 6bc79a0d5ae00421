"""The subcommands of `outscaler`, a module each: add_arguments(parser) and run(args) -> exit code."""
