"""Tests of the backends. `contract` has the suite; each `test_*` names a backend and what is special about
it.
"""
