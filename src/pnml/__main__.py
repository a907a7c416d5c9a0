"""The command line as a program: ``pnml``, or ``python -m pnml`` where the script is not on the path."""

from __future__ import annotations

import sys


def main() -> None:
    """Run a command; Ctrl-C while its modules are imported ends in one line, too."""
    try:
        from pnml.cli import app

        app(prog_name="pnml")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was begun\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
