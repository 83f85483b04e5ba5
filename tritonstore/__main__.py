"""`python -m tritonstore`."""

from tritonstore.cli.main import entry

if __name__ == "__main__":
    entry()
