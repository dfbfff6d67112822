"""One line per error, one exit code per kind, and no noise of other libraries."""

from __future__ import annotations

import contextlib
import sys
import traceback
import warnings
from collections.abc import Iterator

import click

WRONG_INPUT, INTERRUPTED = 2, 130
EXPECTED = (ValueError, RuntimeError, OSError, ImportError)


@contextlib.contextmanager
def tidy_errors(ctx: click.Context) -> Iterator[None]:
    """Turn expected errors into ``error: ...`` on stderr and exit code 2; Ctrl-C exits with 130."""
    debug = ctx.find_root().meta
    try:
        with warnings.catch_warnings():
            _quiet_warnings()
            yield
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe left; nobody wants a message about it
        ctx.exit(1)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        ctx.exit(INTERRUPTED)
    except (click.exceptions.Exit, click.exceptions.Abort):
        raise
    except click.ClickException as error:
        click.echo(f"error: {_one_line(error.format_message())}", err=True)
        ctx.exit(WRONG_INPUT)
    except EXPECTED as error:
        if debug.get("debug"):
            traceback.print_exc()
        click.echo(f"error: {describe_error(error)}", err=True)
        ctx.exit(WRONG_INPUT)


def describe_error(error: BaseException) -> str:
    """One line; an import error keeps its true cause and names the interpreter it happened in."""
    text = _one_line(str(error)) or type(error).__name__
    if isinstance(error, ImportError):
        return f"{text} (in {sys.executable}); `csd doctor` says what mends it"
    return text


def note(text: str) -> None:
    """A line for the person at the terminal; never part of a command's output."""
    click.echo(text, err=True)


@contextlib.contextmanager
def status(text: str) -> Iterator[None]:
    """``text`` on the last line of a terminal while something slow runs; nothing where output is piped."""
    if not sys.stderr.isatty():
        yield
        return
    click.echo(f"{text} ...", nl=False, err=True)
    try:
        yield
    finally:
        click.echo(f"\r{' ' * (len(text) + 4)}\r", nl=False, err=True)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _quiet_warnings() -> None:
    """Our own warnings become one line; deprecations inside other libraries are not for users of a command."""
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)
    warnings.filterwarnings("ignore", category=UserWarning, module="huggingface_hub|diffusers|transformers|accelerate")
    warnings.showwarning = lambda message, *_, **__: note(f"warning: {_one_line(str(message))}")


def quiet_libraries() -> None:
    """Silence the loading bars and advice of transformers and diffusers; downloads keep their bars."""
    import diffusers.utils.logging
    import transformers.utils.logging

    for logging in (diffusers.utils.logging, transformers.utils.logging):
        logging.set_verbosity_error()
        logging.disable_progress_bar()
