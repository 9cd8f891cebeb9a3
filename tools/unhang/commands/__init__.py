"""One module per command: HELP (one line), add_arguments(parser), run(arguments) -> exit code."""
