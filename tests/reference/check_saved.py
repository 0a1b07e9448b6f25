#!/usr/bin/env python3
"""Checks that transformers reads what tinyloom's model.save() wrote, and computes the same logits.

    python check_saved.py DIR EXPECTED [--adapter DIR] [--hashes FILE [--record]] [--tolerance 1e-4]

DIR       holds config.json and model.safetensors as saved.
EXPECTED  is JSON: {"tokens": [ids of one document], "logits": "logits.f32"}, the logits being
          tinyloom's own, a raw little-endian f32 file [tokens x vocab_size] named relative to
          EXPECTED.
--adapter names a folder with an adapter that PEFT loads over the model.
--hashes  names a list in the format of sha256sum. With --record it is written, after the logits
          agreed; without, the saved files must match it.

Exit code: 0 agreed, 1 differed, 2 could not be checked.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

FILES = ("config.json", "model.safetensors")


def fail(code, message):
    print(f"check_saved: {message}", file=sys.stderr)
    sys.exit(code)


def sha256sums(folder):
    return "".join(
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in FILES
    )


def compare_hashes(folder, hashes):
    recorded, found = hashes.read_text(), sha256sums(folder)
    if recorded != found:
        fail(1, f"the files are not those of {hashes}\nrecorded:\n{recorded}found:\n{found}"
                "check the logits and write the list again with --record")
    print(f"hashes match {hashes}")


def compare_logits(torch, transformers, folder, expected, adapter, tolerance):
    spec = json.loads(expected.read_text())
    raw = (expected.parent / spec["logits"]).read_bytes()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    # from_pretrained only warns of a missing tensor and invents it: ask, and refuse.
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="eager",
        local_files_only=True,
        output_loading_info=True,
    )
    if any(info.values()):
        fail(1, f"transformers did not load the tensors one to one: {info}")
    if adapter:
        import peft

        # It warns of missing keys in the same way: what it would save must be what it has read.
        model = peft.PeftModel.from_pretrained(model, adapter)
        read = peft.utils.load_peft_weights(adapter, device="cpu")
        kept = peft.get_peft_model_state_dict(model)
        if read.keys() != kept.keys() or any(not torch.equal(read[k], kept[k]) for k in read):
            fail(1, f"PEFT did not load the adapter's tensors one to one: {sorted(kept)}")
    with torch.no_grad():
        theirs = model(torch.tensor([spec["tokens"]]), use_cache=False).logits[0]
    if len(raw) != theirs.numel() * 4:
        fail(2, f"{spec['logits']} has {len(raw)} bytes, {tuple(theirs.shape)} f32 were expected")
    ours = torch.frombuffer(bytearray(raw), dtype=torch.float32).view_as(theirs)
    difference = (ours - theirs).abs().max().item()
    print(f"maximum difference of {theirs.numel()} logits: {difference:.3e}")
    # Written so that a NaN fails.
    if not difference <= tolerance:
        fail(1, f"the logits differ by more than {tolerance}")


def main():
    parser = argparse.ArgumentParser(description="Compare a saved model with transformers.")
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("expected", metavar="EXPECTED", type=Path)
    parser.add_argument("--adapter", metavar="DIR", type=Path)
    parser.add_argument("--hashes", metavar="FILE", type=Path)
    parser.add_argument("--record", action="store_true", help="write FILE if the logits agree")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    args = parser.parse_args()
    if args.record and not args.hashes:
        parser.error("--record needs --hashes FILE")
    if args.adapter and args.hashes:
        parser.error("--hashes are of a model without an adapter")
    for path in (*(args.folder / name for name in FILES), args.expected):
        if not path.is_file():
            fail(2, f"{path} is missing")
    try:
        import torch
        import transformers
    except ImportError as error:
        fail(2, f"{error}: the logits cannot be compared")
    compare_logits(torch, transformers, args.folder, args.expected, args.adapter, args.tolerance)
    if args.record:
        args.hashes.write_text(sha256sums(args.folder))
        print(f"wrote {args.hashes}")
    elif args.hashes:
        compare_hashes(args.folder, args.hashes)


if __name__ == "__main__":
    main()
