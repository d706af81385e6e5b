"""``python -m hires``: the same command line as ``hires``."""

from hires.cli import main

if __name__ == "__main__":
    main()
