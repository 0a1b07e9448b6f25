"""What Python's tokenizers make of texts and lists of ids.

    python tokenizers_oracle.py < CASES > ANSWERS

A case: {"file": path or "json": {...}, "texts": [...], "lists": [...], "prefixes": n}. Texts are given back as ids, whole,
without special tokens, and with special tokens as text. Lists, and the ids of the texts, are given back as text. For the
first n of these, and for all lists, the text of each beginning is given too. A file that Python refuses has an error.
"""

import json
import sys

from tokenizers import Tokenizer


def answer(case):
    if "file" in case:
        tokenizer = Tokenizer.from_file(case["file"])
    else:
        tokenizer = Tokenizer.from_str(json.dumps(case["json"]))
    texts, lists = case.get("texts", []), case.get("lists", [])

    def encoded(add):
        return [tokenizer.encode(text, add_special_tokens=add).ids for text in texts]

    def decoded(ids, skip):
        return [tokenizer.decode(one, skip_special_tokens=skip) for one in ids]

    found = {"whole": encoded(True), "plain": encoded(False)}
    tokenizer.encode_special_tokens = True
    found["text"] = encoded(False)
    every = found["whole"] + lists
    found["kept"] = decoded(every, False)
    found["skipped"] = decoded(every, True)
    streamed = found["whole"][: case.get("prefixes", 0)] + lists
    found["prefixes"] = [
        decoded([one[: k + 1] for k in range(len(one))], False) for one in streamed
    ]
    return found


answers = []
for case in json.load(sys.stdin):
    try:
        answers.append(answer(case))
    except Exception as error:  # pylint: disable=broad-except
        answers.append({"error": str(error)})
json.dump(answers, sys.stdout)
