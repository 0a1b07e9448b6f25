"""What Python's tokenizers make of texts and lists of ids.

    python tokenizers_oracle.py TOKENIZER_JSON < QUESTIONS > ANSWERS

Questions: {"texts": [...], "lists": [...], "prefixes": n}. For the first n lists the text of each beginning is given.
"""

import json
import sys

from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file(sys.argv[1])
asked = json.load(sys.stdin)
texts, lists = asked["texts"], asked["lists"]


def encoded(add):
    return [tokenizer.encode(text, add_special_tokens=add).ids for text in texts]


def decoded(ids, skip):
    return [tokenizer.decode(one, skip_special_tokens=skip) for one in ids]


answer = {"whole": encoded(True), "plain": encoded(False)}
tokenizer.encode_special_tokens = True
answer["text"] = encoded(False)
tokenizer.encode_special_tokens = False
every = answer["whole"] + lists
answer["kept"] = decoded(every, False)
answer["skipped"] = decoded(every, True)
answer["prefixes"] = [
    decoded([one[: k + 1] for k in range(len(one))], False)
    for one in every[: asked["prefixes"]]
    + lists
]
json.dump(answer, sys.stdout)
