"""`python -m tcomp`: the command line."""

from tcomp.cli import main

if __name__ == "__main__":
    main()
