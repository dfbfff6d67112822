import os
import shutil
import subprocess
import sys

import pytest
from command_results import REPOSITORY

from csd_pipeline.cli import doctor, packages


def run_beside(folder, *arguments):
    """`csd doctor` in an interpreter that finds ``folder`` before anything installed."""
    code = "from csd_pipeline.cli import main; main()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(REPOSITORY)])}
    command = [sys.executable, "-c", code, "doctor", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("error", ["ImportError", "OSError", "ZeroDivisionError"])
def test_a_torch_that_does_not_import_is_told_truly(tmp_path, error):
    for name in ("diffusers", "transformers", "accelerate"):  # their own imports are not what is tested
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "torch.py").write_text(f"raise {error}('libboom.so: no such file')\n")
    done = run_beside(tmp_path)
    assert done.returncode == 1
    assert done.stderr == ""
    assert f"{error}: libboom.so: no such file" in done.stdout
    assert f"rename {tmp_path / 'torch.py'}" in done.stdout
    assert sys.executable in done.stdout


def test_packages_that_stop_at_torch_are_not_blamed(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('boom')\n")
    (tmp_path / "accelerate.py").write_text("import torch\n")
    done = run_beside(tmp_path)
    assert "accelerate" in done.stdout
    assert "stops at the error of torch" in done.stdout
    assert done.stdout.split("what mends it:")[1].count("\n") == 2  # the one line about torch
    assert done.stderr == ""


def test_a_whole_installation_is_fine(csd):
    result = csd("doctor")
    assert result.exit_code == 0, result.output
    for name in ("python", "torch", "diffusers", "transformers", "pillow", "dtype", "threads", "embedded"):
        assert f"ok  {name} " in result.stdout
    assert "everything is in place" in result.stdout


def test_missing_and_old_packages_get_the_pip_line_of_this_interpreter(csd, monkeypatch):
    bounds = {"torch": "", "no-such-package": ">=1.2", "click": ">=999", "nor-this-one": ""}
    monkeypatch.setattr(packages, "lower_bounds", lambda: bounds)
    result = csd("doctor")
    assert result.exit_code == 1
    assert (
        f"not installed for {sys.executable}: ModuleNotFoundError: No module named 'no_such_package'" in result.stdout
    )
    assert f'{sys.executable} -m pip install "no-such-package>=1.2" "nor-this-one"\n' in result.stdout
    assert f'{sys.executable} -m pip install --upgrade "click>=999"\n' in result.stdout


def test_broken_models_are_found(csd, monkeypatch, tmp_path):
    shutil.copytree(doctor.MODELS / "embedded", tmp_path / "embedded")
    with (tmp_path / "embedded" / "model.safetensors").open("r+b") as file:
        file.truncate(1000)
    monkeypatch.setattr(doctor, "MODELS", tmp_path)
    monkeypatch.setattr(doctor, "_report_import", lambda report: None)
    result = csd("doctor", "nowhere")
    assert result.exit_code == 1
    assert "!!  embedded" in result.stdout
    assert "truncated" in result.stdout
    assert "no folder nowhere" in result.stdout


def test_bounds_are_those_of_the_project():
    bounds = packages.lower_bounds()
    assert bounds["torch"].startswith(">=")
    assert {"diffusers", "transformers", "pillow", "click"} <= set(bounds)
    assert packages.Package("torch", ">=2.4", "2.13.0+cpu", None).too_old is False
    assert packages.Package("torch", ">=2.4", "2.3.1", None).too_old is True
