"""The command line `csd`. Nothing heavy is imported before a command that needs it runs."""

from .app import app, main

__all__ = ["app", "main"]
