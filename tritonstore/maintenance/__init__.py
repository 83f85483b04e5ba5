"""Looking after stores and records: what the commands do, without the commands.

    inventory   what is in a store, entry by entry
    prune, verify, bundle, fetch, doctor    remove, check, carry, check the installation
    runs        what past processes left: load, merge, compact
    explain     why the calls of a run missed
    summary     a run in lines of words and numbers
    report      a run as one HTML page

Nothing here imports torch or triton.
"""
