"""Rows of tokens for the target: a prompt padded on the left and the 256 tokens of its picture."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from .dataset import StickerDataset
from .pixel_codes import PixelCodes
from .text_tokenizer import PAD_ID, prompt_ids

DROPOUT_STREAM, NOISE_STREAM = 1, 2
SIMILAR_CODES = 8


@dataclass
class TokenBatch:
    """`prompts` and `mask` (rows, prompt length), `pictures` (rows, 256), all int64; mask is 1 on real tokens.

    `inputs` (rows, 256) is what the model reads where that differs from the picture it must predict.
    """

    prompts: torch.Tensor
    mask: torch.Tensor
    pictures: torch.Tensor
    inputs: torch.Tensor | None = None


@dataclass
class BatchMaker:
    """Makes any rows of any step's batch; the rows depend on nothing but (seed, step, index)."""

    dataset: StickerDataset
    codes: PixelCodes
    tokenizer: PreTrainedTokenizerFast
    seed: int
    caption_dropout: float
    noisy_share: float = 0.0
    noise_rate: float = 0.0

    def make(self, step: int, indices: range, held_out: bool = False) -> TokenBatch:
        samples = [self.dataset.sample(self.seed, step, index, held_out) for index in indices]
        prompts = [prompt_ids(self.tokenizer, sample.caption) for sample in samples]
        for prompt, index in zip(prompts, indices, strict=True):
            if np.random.default_rng((self.seed, step, index, DROPOUT_STREAM)).random() < self.caption_dropout:
                prompt[1:-1] = [PAD_ID] * (len(prompt) - 2)
        ids, mask = pad_left(prompts)
        pictures = self.codes.encode(np.stack([sample.picture for sample in samples]))
        if held_out or not self.noisy_share:
            return TokenBatch(ids, mask, pictures)
        rows = [self._with_mistakes(row, step, index) for row, index in zip(pictures, indices, strict=True)]
        return TokenBatch(ids, mask, pictures, torch.stack(rows))

    def _with_mistakes(self, tokens: torch.Tensor, step: int, index: int) -> torch.Tensor:
        """Replace some input tokens of some pictures by similar codes, a quarter of them by any code.

        A model that only ever read perfect pictures is led astray by its own first mistake; most of all where subject
        and background were never seen together and the right code at their border is a guess.
        """
        rng = np.random.default_rng((self.seed, step, index, NOISE_STREAM))
        if rng.random() >= self.noisy_share:
            return tokens
        wrong = torch.from_numpy(rng.random(len(tokens)) < rng.random() * self.noise_rate)
        similar = self._similar[tokens, torch.from_numpy(rng.integers(SIMILAR_CODES, size=len(tokens)))]
        anything = torch.from_numpy(rng.integers(len(self.codes.centroids), size=len(tokens)))
        mistakes = torch.where(torch.from_numpy(rng.random(len(tokens)) < 0.75), similar, anything)
        return torch.where(wrong, mistakes, tokens)

    @cached_property
    def _similar(self) -> torch.Tensor:
        """(codes, SIMILAR_CODES) nearest other codes by pixel distance."""
        distance = torch.cdist(self.codes.centroids, self.codes.centroids)
        return distance.fill_diagonal_(torch.inf).topk(SIMILAR_CODES, largest=False).indices


def pad_left(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token lists -> ids and mask (rows, longest). PAD tokens of dropped captions stay attended, as in Janus."""
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest), PAD_ID)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return ids, mask
