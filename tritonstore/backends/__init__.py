"""Places that keep bytes under a digest. `base` has the contract, `registry` opens one from a URL; one file
each.
"""
