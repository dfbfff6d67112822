"""`python -m csd_pipeline.training.embedded`: the training of the embedded model from a shell."""

import json
import logging
import os
from pathlib import Path

import click

from .run import STAGES, train_embedded

MODELS = Path(__file__).resolve().parents[2] / "models"


def _overrides(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict:
    numbers = {}
    for value in values:
        name, _, number = value.partition("=")
        try:
            numbers[name] = json.loads(number)
        except json.JSONDecodeError:
            raise click.BadParameter(f"{value!r} is not NAME=NUMBER, such as target.steps=4000") from None
    return numbers


@click.command(context_settings={"show_default": True})
@click.option("--work-dir", type=click.Path(path_type=Path), required=True, help="Packages, checkpoints, logs.")
@click.option(
    "--out-dir",
    type=click.Path(path_type=Path),
    default=MODELS / "embedded",
    help="The model folder; by default the one inside the package, which `csd generate` draws with, is replaced.",
)
@click.option("--judge-dir", type=click.Path(path_type=Path), default=MODELS / "prompt_accuracy",
              help="The classifier that measures prompt accuracy; by default the package's own.")  # fmt: skip
@click.option("--stage", "stages", multiple=True, type=click.Choice(STAGES), help="Only these stages.")
@click.option("--init", type=click.Path(path_type=Path, exists=True), help="Continue from this model folder.")
@click.option("--processes", type=click.IntRange(min=1), default=os.cpu_count() or 1, help="Processes of the target.")
@click.option("--set", "overrides", multiple=True, callback=_overrides, help="Recipe number, e.g. target.steps=4000.")
def main(stages: tuple[str, ...], **arguments) -> None:
    """Train the embedded text-to-image model from scratch or from an existing one."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    train_embedded(stages=stages or STAGES, **arguments)


if __name__ == "__main__":
    main()
