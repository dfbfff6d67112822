"""The pack on a real server: every call goes over HTTP and WebSocket."""

import io
import json
import time
from pathlib import Path

import pytest
import requests
from contract import CONTRACT, describe, differences
from models import MANY_SIZES, SIZES
from PIL import Image
from server import PACK, REPOSITORY

API = sorted((REPOSITORY / "workflows" / "api").glob("*.json"))
APPLE, VARIED = "red apple on white", "lion at sunset"  # some seeds draw the very same apple
TOKENS = 256  # of the embedded model


def chain(server, images: int = 1, seed: int = 1, window: int = 32, prompt: str = APPLE, **sampler) -> dict:
    """Target, prompt, drafter, sampler, decoder, saved picture."""
    sampler = {"target": ["1", 0], "prompt": ["2", 0], "drafter": ["3", 0], "seed": seed, "images": images} | sampler
    return {
        "1": server.node("CSDLoadTarget"),
        "2": server.node("CSDPrompt", positive=prompt),
        "3": server.node("CSDJacobiDrafter", window=window, redraw="gumbel"),
        "4": server.node("CSDSampler", **sampler),
        "5": server.node("CSDDecode", tokens=["4", 0]),
        "6": server.node("CSDSaveImage", images=["5", 0], trace=["4", 1]),
    }


def pixels(picture: bytes) -> bytes:
    return Image.open(io.BytesIO(picture)).convert("RGB").tobytes()


def refusal(server, graph: dict) -> dict[str, str]:
    """Node id -> sentence of a graph that must be refused before it runs."""
    response = server.post("/prompt", {"prompt": graph})
    assert response.status_code == 400, response.text
    errors = response.json()["node_errors"]
    return {
        node: " ".join(e["message"] + " " + e["details"] for e in entry["errors"]) for node, entry in errors.items()
    }


# ---- what the server says of our nodes ----


def test_the_pack_is_imported_and_no_node_left_the_contract(server):
    """Ids, inputs, their order and types stay as frozen; inputs may be appended (write_contract.py freezes them)."""
    assert differences(json.loads(CONTRACT.read_text()), describe(server.object_info())) == []


def test_every_node_and_input_is_explained(server):
    for name, info in server.object_info().items():
        assert info["category"].split("/")[0] == "CSD", name
        assert info["description"] and info["display_name"] != name, name
        inputs = {**info["input"].get("required", {}), **info["input"].get("optional", {})}
        silent = [key for key, spec in inputs.items() if len(spec) < 2 or not spec[1].get("tooltip")]
        assert not silent, (name, silent)
        assert all(info["output_tooltips"] or [None] * len(info["output"])), name


def test_every_rule_and_filter_of_the_library_has_its_node(server):
    from csd_pipeline.relaxation import RELAXATIONS

    nodes = server.object_info()
    assert {f"CSDRelaxation{name.capitalize()}" for name in RELAXATIONS} <= nodes.keys()
    assert {"CSDFilterTV", "CSDFilterKL", "CSDFilterBudget", "CSDFilterCombine"} <= nodes.keys()


def test_the_compare_workflow_holds_every_rule():
    from csd_pipeline.relaxation import RELAXATIONS

    graph = json.loads((REPOSITORY / "workflows" / "api" / "5-rules-side-by-side.json").read_text())
    used = {node["class_type"] for node in graph.values()}
    assert {f"CSDRelaxation{name.capitalize()}" for name in RELAXATIONS} <= used, "write_workflows.py adds it"


def test_templates_are_served_with_a_thumbnail(server):
    names = {path.stem for path in (REPOSITORY / "workflows").glob("*.json")}
    assert len(names) >= 6
    assert set(server.get("/workflow_templates")[PACK]) == names
    for name in names:
        assert server.get(f"/api/workflow_templates/{PACK}/{name}.json")["nodes"]
        picture = Image.open(io.BytesIO(server.get(f"/api/workflow_templates/{PACK}/{name}.jpg")))
        assert picture.format == "JPEG"
    assert names == {path.stem for path in API}


def test_folders_of_extra_model_paths_are_listed_behind_the_embedded_model(server):
    options = server.get("/object_info/CSDLoadTarget")["CSDLoadTarget"]["input"]["required"]["model"]
    names = options[0] if isinstance(options[0], list) else options[1]["options"]
    assert names[0] == "embedded"
    assert "Janus-Pro-7B" in names


# ---- running ----


@pytest.mark.parametrize("path", API, ids=lambda path: path.stem)
def test_every_workflow_yields_its_pictures(server, path: Path):
    graph = json.loads(path.read_text())
    pictures = server.images(graph)
    assert len(pictures) >= sum(node["class_type"] == "CSDSaveImage" for node in graph.values())
    for picture in pictures:
        assert len(set(pixels(picture))) > 1, "one flat colour"


def test_a_saved_picture_carries_graph_and_recipe(server):
    graph = chain(server)
    (picture,) = server.images(graph)
    text = Image.open(io.BytesIO(picture)).text
    assert json.loads(text["prompt"])["4"]["class_type"] == "CSDSampler"
    ours = {key: value for key, value in text.items() if key not in ("prompt", "workflow")}
    facts = " ".join(ours.values())
    assert APPLE in facts
    assert "nfe" in facts


def test_same_seed_same_bytes_and_another_seed_another_picture(server):
    (first,) = server.images(chain(server, seed=2**64 - 1, prompt=VARIED))
    server.free()
    (again,) = server.images(chain(server, seed=2**64 - 1, prompt=VARIED))
    (other,) = server.images(chain(server, seed=5, prompt=VARIED))
    (wide,) = server.images(chain(server, seed=5 + 2**32, prompt=VARIED))
    assert pixels(first) == pixels(again)
    assert len({pixels(first), pixels(other), pixels(wide)}) == 3


def test_a_batch_holds_the_pictures_of_its_single_runs(server):
    batch = server.images(chain(server, images=2, seed=8))
    singles = server.images(chain(server, seed=8)) + server.images(chain(server, seed=9))
    assert [pixels(p) for p in batch] == [pixels(p) for p in singles]


def test_progress_counts_tokens_and_previews_stay_rare(server):
    server.free()
    run = server.run(chain(server, images=2, seed=21, window=1))
    assert run.end == "execution_success", run.events[-1]
    steps = run.progress("4")
    values = [value for value, _ in steps]
    assert {total for _, total in steps} == {2 * TOKENS}
    assert values == sorted(values) and values[-1] == 2 * TOKENS
    assert len(set(values)) > 4
    assert run.previews
    for _, image in run.previews:
        assert Image.open(io.BytesIO(image)).size[0] > 0
    # at most four a second, with one more for the finished picture
    seconds = run.previews[-1][0] - run.previews[0][0]
    assert len(run.previews) <= 4 * seconds + 2


def test_the_preview_grows_row_by_row(server):
    server.free()
    run = server.run(chain(server, seed=22, window=1))
    assert run.end == "execution_success", run.events[-1]
    (final,) = [server.picture(entry) for entry in run.outputs["6"]["images"]]
    first, last = (Image.open(io.BytesIO(image)).convert("RGB") for image in (run.previews[0][1], run.previews[-1][1]))
    final = Image.open(io.BytesIO(final)).convert("RGB").resize(last.size)
    distance = lambda a, b: sum(abs(x - y) for x, y in zip(a.tobytes(), b.tobytes(), strict=True))  # noqa: E731
    assert distance(last, final) < distance(first.resize(last.size), final)


def test_our_events_feed_the_live_plot(server):
    server.free()
    run = server.run(chain(server, seed=23))
    ours = [(name, data) for _, name, data in run.events if name.startswith("csd")]
    assert ours
    counts = [data for _, data in ours if data.get("node") == "4"]
    assert len(counts) == len(ours)
    assert run.end == "execution_success"


# ---- stopping ----


def test_interrupt_stops_at_once_and_leaves_nothing_broken(server):
    undisturbed = server.images(chain(server, images=2, seed=31))
    long_run = chain(server, images=16, seed=31, window=1)
    asked: list[float] = []

    def interrupt(run, kind, data):
        if kind == "progress" and data["value"] > data["max"] // 20 and not asked:
            asked.append(time.monotonic())
            server.post("/interrupt").raise_for_status()

    server.free()
    run = server.run(long_run, interrupt)
    assert run.end == "execution_interrupted", run.events[-1]
    assert run.events[-1][2]["node_id"] == "4"
    value, total = run.progress("4")[-1]
    assert value < total // 2
    # a second, or one verify round where a busy machine takes longer for it
    times = [at for at, kind, _ in run.events if kind == "progress"]
    rounds = [b - a for a, b in zip(times, times[1:], strict=False)]
    assert run.events[-1][0] - asked[0] < max([1.0, *rounds])
    server.free()
    assert [pixels(p) for p in server.images(chain(server, images=2, seed=31))] == [pixels(p) for p in undisturbed]
    assert "Traceback" not in server.log[server.log.rfind("got prompt") :]


def test_free_gives_the_model_back_and_the_next_run_loads_it(server):
    (before,) = server.images(chain(server, seed=41))
    server.free()
    run = server.run(chain(server, seed=41))
    assert run.end == "execution_success"
    ran = {data["node"] for data in run.of_type("executing") if data["node"]}
    assert {"1", "4"} <= ran, "nothing was freed: the run came from the cache"
    (after,) = [server.picture(entry) for entry in run.outputs["6"]["images"]]
    assert pixels(before) == pixels(after)


# ---- refusing ----


@pytest.mark.parametrize(
    "node, changes",
    [
        ("1", {"model": "no-such-model"}),
        ("1", {"dtype": "int8"}),
        ("3", {"window": 0}),
        ("3", {"redraw": "sometimes"}),
        ("4", {"temperature": -3.0}),
        ("4", {"top_p": 2.0}),
        ("4", {"images": 0}),
        ("4", {"seed": -1}),
        ("4", {"width": -8}),
    ],
    ids=str,
)
def test_a_bad_value_is_refused_on_its_node_before_anything_runs(server, node, changes):
    graph = chain(server)
    graph[node]["inputs"] |= changes
    errors = refusal(server, graph)
    assert errors.keys() == {node}
    assert next(iter(changes)) in errors[node]


def test_the_page_is_told_what_a_model_draws(server):
    assert server.get("/csd/sizes", model="embedded") == {"sizes": [[128, 128]]}
    assert server.get("/api/csd/sizes", model=MANY_SIZES) == {"sizes": [list(size) for size in SIZES]}
    for name in ("no-such-model", "", "../elsewhere", str(REPOSITORY / "csd_pipeline" / "models" / "embedded")):
        answer = requests.get(server.url + "/csd/sizes", params={"model": name}, timeout=60)
        assert answer.status_code == 400 and "no model folder" in answer.json()["error"]


def test_every_size_that_is_offered_is_drawn(server):
    prompts = {"1": server.node("CSDLoadTarget", model=MANY_SIZES), "2": server.node("CSDPrompt", positive="red cat")}
    for width, height in SIZES:
        graph = chain(server, width=width, height=height) | prompts
        (picture,) = server.images(graph)
        assert Image.open(io.BytesIO(picture)).size == (width, height)
    quick = server.node("CSDQuickGenerate", prompt="red cat", target=["1", 0], width=64, height=128)
    (picture,) = server.images(prompts | {"3": quick, "4": server.node("SaveImage", images=["3", 0])})
    assert Image.open(io.BytesIO(picture)).size == (64, 128)


def test_a_size_the_model_can_not_draw_names_those_it_can(server):
    run = server.run(chain(server, width=512))
    assert run.end == "execution_error" and run.events[-1][2]["node_id"] == "4"
    assert "this model draws 128x128 pixels" in run.events[-1][2]["exception_message"]
    as_is, named = (server.images(chain(server, **size)) for size in ({}, {"width": 128, "height": 128}))
    assert [pixels(picture) for picture in as_is] == [pixels(picture) for picture in named]


def test_a_missing_link_is_named(server):
    graph = chain(server)
    del graph["4"]["inputs"]["target"]
    errors = refusal(server, graph)
    assert "target" in errors["4"]


def test_a_broken_checkpoint_is_explained_on_the_loader(server):
    folder = server.base / "models" / "csd" / "half-a-model"
    folder.mkdir(parents=True)
    source = REPOSITORY / "csd_pipeline" / "models" / "embedded" / "config.json"
    (folder / "config.json").write_text(source.read_text())
    graph = chain(server)
    graph["1"]["inputs"]["model"] = "half-a-model"
    response = server.post("/prompt", {"prompt": graph})
    if response.status_code == 400:  # refused before anything runs
        sentence = json.dumps(response.json()["node_errors"]["1"])
    else:
        run = server.run(graph)
        assert run.end == "execution_error"
        assert run.events[-1][2]["node_id"] == "1"
        sentence = run.events[-1][2]["exception_message"]
    assert "half-a-model" in sentence
    assert "safetensors" in sentence


# ---- workflows of another pack ----


def test_a_janus_workflow_runs_on_our_nodes(server):
    old = json.loads((Path(__file__).parent / "old_janus_api.json").read_text())
    pictures = server.images(old)
    assert len(pictures) == 2
