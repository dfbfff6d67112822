"""Image codes that are entries of a text vocabulary: the map between the two, and a head cut down to the codes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .weights import weight_of


class CodesInVocabulary:
    """Code ``k`` is token ``ids[k]``; the forced marks of a family come after the codes.

    Args:
        codes: [K] int64 vocabulary ids of the image codes, in code order.
        marks: vocabulary ids of the family's forced marks (line ends); they have no logits.
    """

    def __init__(self, codes: Tensor, marks: tuple[int, ...] = ()):
        self.codes = codes
        self.ids = torch.cat([codes, codes.new_tensor(marks)]) if marks else codes

    def __len__(self) -> int:
        return len(self.ids)

    def vocabulary_ids(self, tokens: Tensor) -> Tensor:
        """Vocabulary ids of tokens [...] (codes and marks)."""
        self.ids = self.ids.to(tokens.device)
        return self.ids[tokens]

    def head_rows(self, head: nn.Linear) -> tuple[Tensor, Tensor | None]:
        """Weight [K, D] and bias [K] of the rows of a language-model head that belong to image codes.

        Adjacent rows come back as a view: published vocabularies keep their codes together, and a copy of the rows of
        a 7B head would take 64 MB.
        """
        first = int(self.codes[0])
        weight, bias = weight_of(head), weight_of(head, "bias")
        if torch.equal(self.codes.cpu(), torch.arange(first, first + len(self.codes))):
            rows = slice(first, first + len(self.codes))
        else:
            rows = self.codes.to(weight.device)
        return weight[rows], None if bias is None else bias[rows]
