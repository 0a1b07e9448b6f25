"""Where the results of PyTorch on this machine's CUDA GPU are written: bench/pytorch.py and bench/pytorch_prompts.py."""

import datetime
import json

import torch
import transformers


def write(folder, workload, rows, **more):
    """
    Writes FOLDER/pytorch-GPU/DATE-WORKLOAD.json.

    :param rows: what was measured, a dict each.
    :param more: further fields of the result, such as the driver's version.
    """
    gpu = torch.cuda.get_device_name()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    result = {"gpu": gpu, **more, **versions, "rows": rows}
    path = folder / f"pytorch-{'-'.join(gpu.lower().split()[:2])}" / f"{datetime.date.today()}-{workload}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written: {path}")
