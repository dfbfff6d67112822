import os
import subprocess
import sys

import pytest
from command_results import REPOSITORY, one_error

from csd_pipeline.cli.app import COMMANDS

HEAVY = ("torch", "diffusers", "transformers", "numpy", "PIL", "matplotlib", "safetensors")


@pytest.mark.parametrize("arguments", [["--help"], ["generate", "--help"], ["presets"], ["--version"]])
def test_light_commands_import_nothing_heavy(arguments):
    code = (
        "import sys\nfrom csd_pipeline.cli import main\n"
        f"sys.argv = ['csd', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        f"sys.exit(','.join(name for name in {HEAVY!r} if name in sys.modules) or 0)"
    )
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_overview_names_every_command(csd):
    result = csd("--help")
    assert result.exit_code == 0
    assert all(f"\n  {name} " in result.output for name in COMMANDS)


def test_unknown_command_and_option_offer_the_nearest(csd):
    one_error(csd("generat", "x"), "'generat'", "did you mean 'generate'")
    one_error(csd("generate", "x", "--windw", "3"), "--windw", "--window")


def test_debug_shows_the_traceback(csd, no_model):
    result = csd("generate", "x", "--temperature", "-1", "--debug")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: temperature")


def test_missing_package_keeps_its_true_cause(csd, monkeypatch):
    monkeypatch.setitem(COMMANDS, "bench", ("csd_pipeline.no_such_module", "bench", "x"))
    one_error(csd("bench"), "No module named 'csd_pipeline.no_such_module'", sys.executable, "csd doctor")


def test_bench_and_training_are_reachable(csd):
    assert "--quick" in csd("bench", "--help").stdout
    result = csd("train", "embedded", "--help")
    assert result.exit_code == 0
    assert "--work-dir" in result.output
    one_error(csd("train", "embeded"), "embeded")
