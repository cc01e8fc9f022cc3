"""The command, also as `python -m sfumato`."""

import sys


def start() -> None:
    """Runs the command line; what interrupts it while it is loaded is one line too."""
    try:
        from sfumato.cli import main
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; nothing was read or spent\n")
        sys.exit(130)
    main()


if __name__ == "__main__":
    start()
