"""A saved file restores the host's graph and draws again with `csd generate --from`."""

import json

from PIL import Image

from comfy_nodes.png_text import png_text
from csd_pipeline.picture_file import read_recipe


def test_a_file_carries_graph_recipe_and_numbers(drawn, tmp_path):
    prompt, workflow = {"1": {"class_type": "CSDPrompt", "inputs": {"positive": "чай 茶"}}}, {"nodes": [1]}
    text = png_text(prompt, {"workflow": workflow}, drawn.recipes[1], drawn.traces[1].to_dict())
    file = tmp_path / "a.png"
    drawn.images[1].save(file, pnginfo=text)
    with Image.open(file) as saved:
        chunks = {key: json.loads(value) for key, value in saved.text.items()}
    assert chunks["prompt"] == prompt and chunks["workflow"] == workflow
    assert chunks["csd_trace"] == drawn.traces[1].to_dict()
    assert read_recipe(file) == drawn.recipes[1] and read_recipe(file)["seed"] == 4


def test_what_is_not_there_is_left_out(tmp_path):
    file = tmp_path / "a.png"
    Image.new("RGB", (2, 2)).save(file, pnginfo=png_text(None, None))
    with Image.open(file) as saved:
        assert saved.text == {}
