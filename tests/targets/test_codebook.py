import pytest
import torch
from torch.nn.functional import normalize

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.targets import adapter_for
from csd_pipeline.targets.codebook import fingerprint, require_codebook
from csd_pipeline.targets.toy import ToyAdapter, ToyTarget

CODES = torch.randn(300, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_codebook_is_known_again_in_every_precision(dtype):
    require_codebook(fingerprint(CODES), 300, CODES.to(dtype), "x")
    require_codebook(fingerprint(CODES.to(dtype)), 300, CODES, "x")


@pytest.mark.parametrize("other", [CODES[:299], CODES.flip(0), CODES * 1.1, CODES[:, :7], -CODES])
def test_another_codebook_is_refused(other):
    with pytest.raises(ValueError, match="the list was made for"):
        require_codebook(fingerprint(CODES), 300, other, "the list")


def test_the_codebook_of_a_janus_is_what_its_decoder_reads():
    target = CSDAutoregressivePipeline.from_pretrained("embedded").target
    tokens = torch.arange(256)[None]
    entries = target.model.vqmodel.quantize.get_codebook_entry(tokens)  # [1, D, rows, columns]
    codebook = adapter_for(target).codebook
    assert codebook.shape == (512, 8) and codebook.dtype == torch.float32
    assert torch.allclose(entries.flatten(2)[0].T, codebook[:256], atol=1e-6)
    assert torch.allclose(codebook, normalize(codebook, dim=-1))


def test_toys_have_a_codebook_of_their_seed():
    here, again, other = (ToyAdapter(ToyTarget(5, seed=seed)).codebook for seed in (1, 1, 2))
    assert torch.equal(here, again) and not torch.equal(here, other) and here.shape == (5, 2)
