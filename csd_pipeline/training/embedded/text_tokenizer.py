"""The caption tokenizer: byte-level BPE with Janus' special tokens, learnt from the captions of the catalogue."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from .captions import canonical_caption, with_article
from .catalogue import Catalogue

PAD, BOS, EOS = "<pad>", "<|begin▁of▁sentence|>", "<|end▁of▁sentence|>"
BOI, EOI, IMAGE, UNK = "<begin_of_image>", "<end_of_image>", "<image_placeholder>", "<unk>"
SPECIAL_TOKENS = [PAD, BOS, EOS, BOI, EOI, IMAGE, UNK]
PAD_ID, BOS_ID, EOS_ID, BOI_ID, EOI_ID, IMAGE_ID = range(6)


def learn_tokenizer(catalogue: Catalogue, vocabulary: int) -> PreTrainedTokenizerFast:
    """Learns the merges; any text can be written, since every byte is a token."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNK))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(catalogue), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, BOS_ID)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNK,
        padding_side="left",
        model_max_length=256,
        extra_special_tokens={"image_token": IMAGE, "boi_token": BOI, "eoi_token": EOI},
    )


def _corpus(catalogue: Catalogue) -> list[str]:
    names = [subject.name for subject in catalogue.subjects]
    pairs = [
        canonical_caption(catalogue, subject, background)
        for subject in range(len(names))
        for background in range(len(catalogue.backgrounds))
    ]
    return [form for caption in names + pairs for form in (caption, with_article(caption))]


def prompt_ids(tokenizer: PreTrainedTokenizerFast, caption: str) -> list[int]:
    """BOS, the caption, begin-of-image: what precedes the 256 picture tokens."""
    return tokenizer(caption).input_ids + [BOI_ID]
