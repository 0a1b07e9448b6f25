"""What transformers renders of templates, for tests/text.

    python templates_reference.py JOBS OUT   # a list of {template, messages, ...}; what each gives, as JSON

A job: `template` is the text, or `file` a path. `values` go to the template. `prompt` is add_generation_prompt. `mask` asks
for the places of what {% generation %} marks. The date is 2025-03-09 14:05:06.
"""

import json
import sys
from datetime import datetime

from transformers.utils import chat_template_utils


class Fixed(datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 9, 14, 5, 6)


chat_template_utils.datetime = Fixed


def rendered(job: dict, sources: dict) -> dict:
    if "file" in job:
        path = job["file"]
        if path not in sources:
            with open(path, encoding="utf-8", newline="") as file:
                sources[path] = file.read()
        template = sources[path]
    else:
        template = job["template"]
    values = dict(job.get("values", {}))
    try:
        texts, marks = chat_template_utils.render_jinja_template(
            conversations=[job["messages"]],
            chat_template=template,
            add_generation_prompt=job.get("prompt", False),
            return_assistant_tokens_mask=job.get("mask", False),
            **values,
        )
    except Exception as error:  # noqa: BLE001: each refusal counts
        return {"error": str(error)}
    return {"text": texts[0], "marks": marks[0] if marks else []}


def main(jobs: str, out: str) -> None:
    with open(jobs, encoding="utf-8") as file:
        given = json.load(file)
    sources: dict = {}
    with open(out, "w", encoding="utf-8") as file:
        json.dump([rendered(job, sources) for job in given], file)


if __name__ == "__main__":
    main(*sys.argv[1:])
