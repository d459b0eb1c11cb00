"""A transformer of a few thousand random weights in a folder, as the transformers library writes one."""

from collections.abc import Sequence
from pathlib import Path

WORDS = ["red", "green", "blue", "stone", "water", "##s"]
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
DIM = 8


def write_tokeniser(folder: Path, words: Sequence[str] = WORDS) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import Lowercase
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import BertProcessing

    vocabulary = {token: i for i, token in enumerate([*MARKS, *words])}
    tokeniser = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokeniser.normalizer, tokeniser.pre_tokenizer = Lowercase(), Whitespace()
    tokeniser.post_processor = BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokeniser.enable_padding(length=128)  # as many published folders have it
    folder.mkdir(parents=True, exist_ok=True)
    tokeniser.save(str(folder / "tokenizer.json"))


def write_transformer(folder: Path, words: Sequence[str] = WORDS, dim: int = DIM) -> None:
    import torch
    from transformers import BertConfig, BertModel

    write_tokeniser(folder, words)
    config = BertConfig(
        vocab_size=len(MARKS) + len(words) + 6,  # more than the tokeniser has, as some have for the sake of alignment
        hidden_size=dim,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=2 * dim,
        max_position_embeddings=64,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
