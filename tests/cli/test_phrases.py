import pytest
import torch
from command_results import one_error
from safetensors.torch import save_file

from csd_pipeline.relaxation.phrase_library import PhraseLibrary


@pytest.fixture
def tokens(tmp_path):
    """Three embedded-size pictures: rows of 7 8 9 7 8 9 ..."""
    row = torch.tensor([7, 8, 9] * 6)[:16]
    save_file({"tokens": row.expand(3, 16, 16).flatten(1).contiguous()}, tmp_path / "tokens.safetensors")
    return "tokens.safetensors"


def test_phrases_of_given_tokens_serve_a_picture(csd, tokens, tmp_path):
    made = csd("phrases", "--tokens", tokens, "--min-count", 20, "--npmi", -1, "-o", "found.safetensors")
    assert made.exit_code == 0, made.output
    assert "3 of 2 codes, 3 of 3 codes, from 3 pictures" in made.stdout
    library = PhraseLibrary.load(tmp_path / "found.safetensors")
    assert library.phrases[2].tolist() == [[7, 8], [8, 9], [9, 7]] and library.codes == 512
    drawn = csd("generate", "a red apple", "--relaxation", "phrase", "--relax", "library=found.safetensors",
                "--seed", 1, "-o", "x.png")  # fmt: skip
    assert drawn.exit_code == 0, drawn.output


def test_phrases_of_drawn_pictures(csd, tmp_path):
    made = csd("phrases", "a red apple", "-n", 2, "--min-count", 2, "--max-len", 2, "-o", "drawn.safetensors")
    assert made.exit_code == 0, made.output
    library = PhraseLibrary.load(tmp_path / "drawn.safetensors")
    assert list(library.phrases) == [2] and len(library.phrases[2]) > 0 and library.counts[2].min() >= 2


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["a fox", "-o", "x.bin"], ["-o x.bin", ".safetensors file"]),
        (["-o", "x.safetensors"], ["one source"]),
        (["a fox", "--tokens", "t", "-o", "x.safetensors"], ["one source"]),
        (["--tokens", "none", "-o", "x.safetensors"], ["--tokens none", "no readable .safetensors"]),
        (["a fox"], ["--output"]),
    ],
)
def test_bad_calls_are_refused(csd, arguments, parts):
    one_error(csd("phrases", *arguments), *parts)


def test_too_few_pictures_are_refused(csd, tokens):
    one_error(csd("phrases", "--tokens", tokens, "-o", "x.safetensors", "--min-count", 5000), "no phrase occurs 5000")
    one_error(csd("phrases", "--tokens", tokens, "-o", "x.safetensors", "--max-len", 9), "max_len must be 2 to 4")
