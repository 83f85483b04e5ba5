"""Tests of the key: what must change it, what must not, and which launches have none."""
