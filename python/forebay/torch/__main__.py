"""``python -m forebay.torch build``: compiles the adapter ahead of time, and prints where it is."""

from __future__ import annotations

import argparse
import sys

from . import BuildError, build


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m forebay.torch", description="Forebay's adapter for PyTorch")
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("build", help="compile the adapter for the installed PyTorch, unless there is one")
    make.add_argument("--verbose", action="store_true", help="show the compiler's commands and output")
    arguments = parser.parse_args()
    try:
        print(build(verbose=arguments.verbose))
    except (BuildError, ImportError) as error:
        print(f"the adapter was not built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
