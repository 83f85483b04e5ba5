"""The command line: one thin file for each command, which calls `maintenance` or the store.

    main        the table of commands, and the one place where errors become exit codes
    console     terminal or pipe, colour or none, width, progress
    options     options and types that commands share
    reference   docs/cli.md, made from the commands

A command's module has one public name, `command`. It returns an exit code (None is 0) and raises TritonStoreError.
Data goes to stdout, talk to stderr. Nothing here imports torch or triton.
"""
