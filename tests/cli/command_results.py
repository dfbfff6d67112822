"""Shared by the tests of the command line."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def one_error(result, *parts):
    """The one line of a refused call; it must hold ``parts``."""
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    for part in parts:
        assert part in line, line
    return line
