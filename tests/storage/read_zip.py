"""Reads a zip archive with Python's zipfile, its array with NumPy, its tensors with safetensors; prints JSON."""

import hashlib
import json
import sys
import zipfile

import numpy
from safetensors.numpy import load

path = sys.argv[1]
with zipfile.ZipFile(path) as archive:
    assert archive.testzip() is None
    entries = [
        [one.filename, hashlib.sha256(archive.read(one)).hexdigest(), one.date_time] for one in archive.infolist()
    ]
    tensors = load(archive.read("adapter_model.safetensors"))
print(
    json.dumps(
        {
            "entries": entries,
            "numpy": numpy.load(path)["array"].tolist(),
            "safetensors": tensors["weights"].tolist(),
        }
    )
)
