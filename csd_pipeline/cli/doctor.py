"""`csd doctor`: what is installed where, what is wrong, and the one command that mends it."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click

from .packages import Package, inspect_packages, lower_bounds, pip_command

MODELS = Path(__file__).resolve().parents[1] / "models"


@dataclass
class Report:
    """Lines of the report, and what was found wrong with what mends it."""

    problems: list[str] = field(default_factory=list)

    def fine(self, name: str, text: str) -> None:
        self._line("ok", "green", name, text)

    def remark(self, name: str, text: str) -> None:
        self._line("--", "yellow", name, text)

    def wrong(self, name: str, text: str, mend: str) -> None:
        self._line("!!", "red", name, text)
        if mend not in self.problems:
            self.problems.append(mend)

    @staticmethod
    def _line(mark: str, colour: str, name: str, text: str) -> None:
        click.echo(f"{click.style(mark, fg=colour)}  {name:<14}{text}")


@click.command()
@click.argument("model", required=False)
@click.pass_context
def doctor(ctx: click.Context, model: str | None) -> None:
    """Check this installation and, if given, the files of MODEL (a folder, or a published file). Exit code 1 if
    something is wrong."""
    report = Report()
    report.fine("python", f"{platform.python_version()}  {sys.executable}")
    packages = inspect_packages()
    _report_packages(report, packages)
    if next(package for package in packages if package.name == "torch").error is None:
        _report_machine(report)
    if not report.problems:
        _report_import(report)
    _report_models(report, model)
    if not report.problems:
        click.echo("\neverything is in place")
        return
    click.echo("\nwhat mends it:")
    for mend in report.problems:
        click.echo(f"  {mend}")
    ctx.exit(1)


def _report_packages(report: Report, packages: list[Package]) -> None:
    missing = [package for package in packages if package.version is None and package.error is not None]
    install = pip_command("install", *(f'"{package.requirement}"' for package in missing))
    torch_error = next(package.error for package in packages if package.name == "torch")
    for package in packages:
        if package.name != "torch" and package.error is not None and package.error == torch_error:
            report.remark(package.name, f"{package.version} stops at the error of torch")
        elif package in missing:
            report.wrong(package.name, f"not installed for {sys.executable}: {package.error}", install)
        elif package.error is not None and package.shadow:
            mend = f"rename {package.shadow}: Python imports it instead of the installed {package.name}"
            report.wrong(package.name, f"{package.version}, but {package.shadow} hides it: {package.error}", mend)
        elif package.error is not None:
            mend = pip_command("install", "--force-reinstall", f'"{package.requirement}"')
            report.wrong(package.name, f"{package.version} does not import: {package.error}", mend)
        elif package.too_old:
            mend = pip_command("install", "--upgrade", f'"{package.requirement}"')
            report.wrong(package.name, f"{package.version} is older than {package.bound}", mend)
        else:
            report.fine(package.name, package.version or "unknown version")


def _report_machine(report: Report) -> None:
    import warnings

    import torch

    from .devices import choose_device, choose_dtype, choose_threads

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        usable = torch.cuda.is_available()
    for number in range(torch.cuda.device_count() if usable else 0):
        report.fine(f"cuda:{number}", _describe_cuda(torch, number))
    if not usable:
        _report_no_cuda(report, torch, [str(warning.message) for warning in caught])
    if torch.backends.mps.is_available():
        report.fine("mps", "usable")
    device, device_reason = choose_device("auto")
    threads, threads_reason = choose_threads(None)
    torch.set_num_threads(threads)  # first, as in `csd generate`: a number format may be chosen by measurement
    dtype, dtype_reason = choose_dtype("auto", device)
    report.fine("device", f"{device} ({device_reason})")
    report.fine("dtype", f"{dtype} ({dtype_reason})")
    report.fine("threads", f"{threads} ({threads_reason})")


def _describe_cuda(torch, number: int) -> str:
    from .devices import supports_bfloat16

    properties = torch.cuda.get_device_properties(number)
    bfloat16 = "computes in bfloat16" if supports_bfloat16(f"cuda:{number}") else "no bfloat16"
    return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, {bfloat16}"


def _report_no_cuda(report: Report, torch, warnings: list[str]) -> None:
    """Not wrong in itself; worth a word where there is a card that torch does not use."""
    import shutil

    if torch.version.cuda is not None:
        detail = f": {' '.join(warnings[0].split())}" if warnings else ", it finds none"
        report.remark("cuda", f"torch is built for CUDA {torch.version.cuda} but can't use a device{detail}")
    elif shutil.which("nvidia-smi"):
        report.remark("cuda", "an NVIDIA driver, but a torch built without CUDA; see pytorch.org/get-started")


def _report_import(report: Report) -> None:
    """Packages can import one by one and still not fit together."""
    try:
        from csd_pipeline import CSDAutoregressivePipeline  # noqa: F401
    except Exception as error:  # whatever it is, it is what the user needs to see
        mend = pip_command("install", "--upgrade", *(f'"{name}{bound}"' for name, bound in lower_bounds().items()))
        report.wrong("csd_pipeline", f"does not import: {type(error).__name__}: {error}", mend)
    else:
        report.fine("csd_pipeline", "imports")


def _report_models(report: Report, model: str | None) -> None:
    embedded = MODELS / "embedded"
    reinstall = pip_command("install", "--force-reinstall", "--no-deps", "csd-pipeline")
    if (MODELS.parents[1] / ".git").exists():
        reinstall = f"git -C {MODELS.parents[1]} checkout -- {embedded.relative_to(MODELS.parents[1])}"
    _report_folder(report, "embedded", embedded, reinstall)
    if model is not None and model != "embedded":
        _report_folder(report, "model", Path(model), f"download {model} again, whole")


def _report_folder(report: Report, name: str, folder: Path, mend: str) -> None:
    try:
        if not folder.exists():
            raise ValueError(f"no folder {folder}")
        what = _check_model(folder)
    except (ValueError, OSError) as error:
        report.wrong(name, str(error), str(error) if "csd convert" in str(error) else mend)
    except Exception as error:  # a broken torch may raise anything; it is reported in its own line
        report.remark(name, f"not checked: {type(error).__name__}: {error}")
    else:
        report.fine(name, f"whole{what}  {folder}")


def _check_model(folder: Path) -> str:
    """What kind of checkpoint it is, in words; raises ValueError naming the file or key that is missing or broken."""
    from csd_pipeline.layouts import open_checkpoint
    from csd_pipeline.sources import check_local, check_tensors, check_whole

    checkpoint = open_checkpoint(folder)
    if checkpoint is not None:
        check_whole(checkpoint)
        checkpoint.load_tokenizer()
        return f" ({checkpoint.layout})"
    check_local(folder, "CSDAutoregressivePipeline", {})
    check_tensors(folder / "target" if (folder / "target").is_dir() else folder)
    return ""
