"""A real ComfyUI server with this repository as its node pack, and the calls its HTTP and WebSocket interface takes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import requests
import websocket

REPOSITORY = Path(__file__).resolve().parents[2]
PACK = "csd-pipeline"  # the folder a clone has in custom_nodes
NOT_IN_A_CLONE = (".git", "__pycache__", ".*_cache", ".venv", "build", "dist", "*.egg-info", "outputs")
OLDEST, NEWEST = ("ComfyUI-0.16.3", None), ("ComfyUI", None)  # tree, front-end; those .ci/comfy sets up
NEWEST_FRONTEND = ("ComfyUI", "frontend-1.58.1")
START_LIMIT, RUN_LIMIT = 600, 600  # seconds; only to end a hung test
PREVIEW, PREVIEW_WITH_METADATA = 1, 4  # types of binary WebSocket messages


@dataclass
class Run:
    """What one prompt did: ``events`` are (seconds, type, data), ``previews`` are (seconds, image bytes)."""

    prompt_id: str
    events: list[tuple[float, str, dict]] = field(default_factory=list)
    previews: list[tuple[float, bytes]] = field(default_factory=list)
    outputs: dict[str, dict] = field(default_factory=dict)

    @property
    def end(self) -> str:
        return self.events[-1][1]

    def of_type(self, kind: str) -> list[dict]:
        return [data for _, name, data in self.events if name == kind]

    def progress(self, node: str) -> list[tuple[int, int]]:
        """(value, max) of one node, in the order they came."""
        return [(data["value"], data["max"]) for data in self.of_type("progress") if data.get("node") == node]


class ComfyServer:
    """Starts on a free port with a fresh base directory; ends by its own process id.

    Args:
        python: interpreter of the environment with ComfyUI's requirements.
        comfy: ComfyUI's tree.
        base: folder for custom_nodes, models, output, user; the pack is copied into it as a clone would lie there.
        frontend: folder of another front-end, None for the installed one.

    Raises:
        RuntimeError: the server ended or did not answer, or the pack could not be imported; with the end of its log.
    """

    def __init__(self, python: Path, comfy: Path, base: Path, frontend: Path | None = None):
        self.base, self.log_path = base, base / "server.log"
        self.version = (comfy / "comfyui_version.py").read_text().split('"')[1]
        pack = base / "custom_nodes" / PACK
        shutil.copytree(REPOSITORY, pack, ignore=shutil.ignore_patterns(*NOT_IN_A_CLONE))
        settings = base / "user" / "default" / "comfy.settings.json"
        settings.parent.mkdir(parents=True)
        settings.write_text(json.dumps({"Comfy.TutorialCompleted": True}))  # else the template dialog covers the page
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [python, "main.py", "--cpu", "--listen", "127.0.0.1", "--port", str(self.port)]
        command += ["--disable-auto-launch", "--disable-api-nodes", "--base-directory", base]
        if (base / "extra_model_paths.yaml").is_file():
            command += ["--extra-model-paths-config", base / "extra_model_paths.yaml"]
        if self.version != "0.16.3":  # which reports table errors with a database in memory
            command += ["--database-url", "sqlite:///:memory:"]
        if frontend is not None:
            command += ["--front-end-root", frontend / "comfyui_frontend_package" / "static"]
        # without PYTHONPATH: the pack has to find its own library
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command], cwd=comfy, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        limit = time.monotonic() + START_LIMIT
        while time.monotonic() < limit and self.process.poll() is None:
            try:
                requests.get(f"{self.url}/system_stats", timeout=5)
                break
            except requests.RequestException:
                time.sleep(0.3)
        else:
            raise RuntimeError(f"ComfyUI {self.version} did not start:\n{self.log[-4000:]}")
        failed = [line for line in self.log.splitlines() if "IMPORT FAILED" in line and PACK in line]
        if failed:
            raise RuntimeError(f"ComfyUI {self.version} could not import the pack:\n{self.log[-6000:]}")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    # ---- HTTP ----

    def get(self, path: str, **query):
        return self._answer(requests.get(self.url + path, params=query, timeout=60))

    def post(self, path: str, body: dict | None = None) -> requests.Response:
        return requests.post(self.url + path, json=body or {}, timeout=60)

    def _answer(self, response: requests.Response):
        response.raise_for_status()
        return response.json() if "json" in response.headers["content-type"] else response.content

    def object_info(self) -> dict[str, dict]:
        """Our nodes as the server describes them."""
        return {name: info for name, info in self.get("/object_info").items() if name.startswith("CSD")}

    def node(self, class_type: str, **inputs) -> dict:
        """One node in API format: required widgets that are not given get the default the page would show."""
        values = {}
        for name, spec in self.get(f"/object_info/{class_type}")[class_type]["input"].get("required", {}).items():
            default = widget_default(spec)
            if default is not None:
                values[name] = default
        return {"class_type": class_type, "inputs": values | inputs}

    def free(self) -> None:
        """Drop cached results and models, so that the next run really runs."""
        self.post("/free", {"unload_models": True, "free_memory": True}).raise_for_status()
        # the request is obeyed by the worker thread, which wakes up for a prompt or within a second
        time.sleep(1.5)

    def picture(self, entry: dict) -> bytes:
        return self.get("/view", filename=entry["filename"], subfolder=entry["subfolder"], type=entry["type"])

    def set_setting(self, name: str, value) -> None:
        self.post("/settings", {name: value}).raise_for_status()

    # ---- running ----

    def wait_for_history(self, before, prompt_id: str | None = None, pump=lambda: time.sleep(0.1)) -> dict:
        """The history entry of a prompt, or of the next one that is not among ``before``, once it has ended.

        ``pump`` is what is done while waiting.
        """
        limit = time.monotonic() + RUN_LIMIT
        while time.monotonic() < limit:
            history = self.get("/history")
            new = [prompt for prompt in history if prompt not in before and prompt_id in (None, prompt)]
            if new:
                return history[new[0]]
            pump()
        raise RuntimeError(f"nothing ended within {RUN_LIMIT} s:\n{self.log[-3000:]}")

    def run(self, graph: dict, on_event=None) -> Run:
        """Queue a graph and follow it to its end; ``on_event(run, type, data)`` is called for every message of it."""
        client = uuid.uuid4().hex
        channel = websocket.create_connection(f"ws://127.0.0.1:{self.port}/ws?clientId={client}", timeout=RUN_LIMIT)
        try:
            channel.send(json.dumps({"type": "feature_flags", "data": {"supports_preview_metadata": True}}))
            response = self.post("/prompt", {"prompt": graph, "client_id": client})
            if response.status_code != 200:
                raise RuntimeError(f"the graph was refused: {response.text}")
            run = Run(response.json()["prompt_id"])
            self._follow(channel, run, on_event)
        finally:
            channel.close()
        run.outputs = self.wait_for_history({}, run.prompt_id)["outputs"]  # written a moment after the last event
        return run

    def _follow(self, channel, run: Run, on_event) -> None:
        ends = ("execution_success", "execution_error", "execution_interrupted")
        while not run.events or run.end not in ends:
            message, now = channel.recv(), time.monotonic()
            if isinstance(message, bytes):
                image = preview_bytes(message)
                if image is not None:
                    run.previews.append((now, image))
                continue
            event = json.loads(message)
            kind, data = event["type"], event.get("data") or {}
            if data.get("prompt_id", run.prompt_id) != run.prompt_id or kind in ("status", "feature_flags"):
                continue
            run.events.append((now, kind, data))
            if on_event is not None:
                on_event(run, kind, data)

    def images(self, graph: dict) -> list[bytes]:
        """The picture files a graph saves, as bytes, in the order of its output nodes."""
        run = self.run(graph)
        assert run.end == "execution_success", (run.events[-1], self.log[-3000:])
        return [self.picture(entry) for node in sorted(run.outputs) for entry in run.outputs[node].get("images", ())]


def widget_default(spec: list):
    """What the page would show for an input of /object_info; None for a socket."""
    kind, options = spec[0], spec[1] if len(spec) > 1 else {}
    if isinstance(kind, list):
        return options.get("default", kind[0] if kind else None)
    if kind == "COMBO":
        return options.get("default", (options.get("options") or [None])[0])
    neutral = {"INT": 0, "FLOAT": 0.0, "STRING": "", "BOOLEAN": False}.get(kind)
    return neutral if options.get("default") is None else options["default"]


def preview_bytes(message: bytes) -> bytes | None:
    """The JPEG or PNG of a binary WebSocket message, None where it carries something else."""
    kind, size = struct.unpack(">II", message[:8])
    if kind == PREVIEW:
        return message[8:]
    if kind == PREVIEW_WITH_METADATA:
        return message[8 + size :]
    return None


def comfy_home() -> Path:
    """The folder .ci/comfy has set up. Raises RuntimeError without it: these tests are never skipped."""
    home = os.environ.get("CSD_COMFY_HOME")
    if not home or not Path(home, "ComfyUI", "main.py").is_file():
        raise RuntimeError(
            f"no ComfyUI in CSD_COMFY_HOME={home!r}; run .ci/comfy, which sets it up and runs these tests"
        )
    return Path(home)


def start(base: Path, tree: str = "ComfyUI", frontend: str | None = None) -> ComfyServer:
    home = comfy_home()
    return ComfyServer(Path(sys.executable), home / tree, base, home / frontend if frontend else None)
