"""`python -m rocsolid` is the command line."""

from rocsolid.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
