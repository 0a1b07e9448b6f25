"""What Python's tokenizers and transformers say of texts, for tests/text/tokenizers.test.mjs.

    python tokenizers_reference.py train FOLDER   # the mixed text, and tokenizers trained on it
    python tokenizers_reference.py encode FOLDER TEXT OUT   # ids of the text, as JSON
    python tokenizers_reference.py chat FOLDER CONVERSATIONS OUT   # ids and answers' mask of each
"""

import json
import os
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

WORDS = """the quick brown fox jumps over lazy dogs don't we'll I'm they've IT'S 2024 3.14159 x=y+1;
foo_bar() naïve café Übergröße""".split()
POOLS = [
    WORDS,
    WORDS,
    "Однажды весною в час небывало жаркого заката в Москве".split(),
    ["吾輩は猫である。名前はまだ無い。", "どこで生れたかとんと見当がつかぬ。", "東京都", "カタカナ"],
    "كان يا ما كان في قديم الزمان".split(),
    "एक समय की बात है जंगल में".split(),
    ["สวัสดีครับ", "ภาษาไทย"],
    "בראשית ברא אלהים".split(),
    ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "❤️", "☃", "½", "Ⅷ", "²", "٣"],
]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\t", " \n ", "\r\n", "\u00a0", "\u3000", "\u2003"]
SPACES += [" " * 37, "\n" * 9, "\ufeff", "\u200b", "\u0085"]

# Llama 3's words.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# A template that marks the answers, as transformers reads it.
TEMPLATE = """{%- for message in messages -%}
{{- '<|' + message['role'] + '|>\\n' -}}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] + eos_token -}}{%- endgeneration -%}
{%- else -%}{{- message['content'] + eos_token -}}{%- endif -%}
{{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- endif -%}"""


def mixed(size: int) -> str:
    """Mixed text of about that many bytes: several scripts, emoji, runs of spaces."""
    rng = random.Random(5)
    out, bytes_ = [], 0
    while bytes_ < size:
        pool = rng.choice(POOLS)
        for _ in range(rng.randint(1, 12)):
            space = rng.choice(SPACES) if rng.random() < 0.2 else " "
            out.append(rng.choice(pool) + space)
            bytes_ += len(out[-1].encode())
    return "".join(out)


def save(tokenizer: Tokenizer, folder: str, config: dict) -> None:
    os.makedirs(folder, exist_ok=True)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **config}, file)


def train(folder: str) -> None:
    """The mixed text, and two tokenizers trained on a third of it."""
    text = mixed(1_000_000)
    with open(os.path.join(folder, "mixed.txt"), "w", encoding="utf-8", newline="") as file:
        file.write(text)
    part = [text[i : i + 1000] for i in range(0, len(text) // 3, 1000)]

    level = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    level.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    level.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<|user|>", "<|assistant|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    level.train_from_iterator(
        part, trainers.BpeTrainer(vocab_size=1500, special_tokens=special, initial_alphabet=alphabet)
    )
    level.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", level.token_to_id("<s>"))]
    )
    config = {"eos_token": "</s>", "bos_token": "<s>", "chat_template": TEMPLATE}
    save(level, os.path.join(folder, "byte-level"), config)

    # As Llama 2 has it: no words, a space before the text, bytes for what is not in the vocabulary.
    fallback = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    fallback.normalizer = normalizers.Sequence(steps)
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    fallback.train_from_iterator(
        [word for line in part for word in line.split(" ")],
        trainers.BpeTrainer(
            vocab_size=1200,
            special_tokens=["<unk>", "<s>", "</s>", *bytes_],
            limit_alphabet=120,
            max_token_length=12,
        ),
    )
    fallback.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    # Bytes are tokens of the vocabulary alone, as in Llama's file.
    data = json.loads(fallback.to_str())
    data["added_tokens"] = [one for one in data["added_tokens"] if one["id"] < 3]
    fallback = Tokenizer.from_str(json.dumps(data))
    save(fallback, os.path.join(folder, "byte-fallback"), {"eos_token": "</s>"})


def encode(folder: str, text: str, out: str) -> None:
    """Ids of the text by transformers, and by tokenizers without special tokens."""
    from transformers import AutoTokenizer

    with open(text, encoding="utf-8", newline="") as file:
        content = file.read()
    loaded = AutoTokenizer.from_pretrained(folder)
    raw = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    plain = raw.encode(content, add_special_tokens=False).ids
    result = {
        "ids": loaded.encode(content),
        "plain": plain,
        "decoded": raw.decode(plain, skip_special_tokens=False) == content,
        "size": len(loaded),
    }
    with open(out, "w", encoding="utf-8") as file:
        json.dump(result, file)


def chat(folder: str, conversations: str, out: str) -> None:
    """Ids and answers' mask of each conversation, by transformers' template."""
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(folder)
    with open(conversations, encoding="utf-8") as file:
        lists = json.load(file)
    results = []
    for messages in lists:
        made = loaded.apply_chat_template(
            messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        prompt = loaded.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = loaded.encode(prompt, add_special_tokens=False)
        asked = {"text": prompt, "ids": ids}
        results.append(
            {"ids": made["input_ids"], "mask": made["assistant_masks"], "prompt": asked}
        )
    with open(out, "w", encoding="utf-8") as file:
        json.dump(results, file)


if __name__ == "__main__":
    {"train": train, "encode": encode, "chat": chat}[sys.argv[1]](*sys.argv[2:])
