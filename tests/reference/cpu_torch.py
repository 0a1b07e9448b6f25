"""Lets torch for Linux work without CUDA's libraries, which are three times its size.

    python cpu_torch.py     # once, in the environment in which torch was installed without dependencies

The package index has only the CUDA build of torch for Linux. Its loader wants each of CUDA's libraries, and on
a CPU it calls none but the runtime, which says that there is no device. For each of the others that is missing
this writes a library with the functions that torch names: each returns an error. The environment hides GPUs
from then on, since a call of such a function would fail.
"""

import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SITE = Path(sysconfig.get_path("platlib"))
TORCH = SITE / "torch" / "lib"
OURS = re.compile(r"lib(cu|nccl|nvshmem|nvJitLink)")
HIDES = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''\n"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def wanted():
    """Of each library that torch is linked to: its version nodes, as `objdump -p` prints them."""
    nodes = {}
    for file in TORCH.glob("*.so"):
        text = output("objdump", "-p", str(file))
        for name in re.findall(r"NEEDED\s+(\S+)", text):
            nodes.setdefault(name, set())
        for name, rows in re.findall(r"required from (\S+):\n((?:\s+0x.*\n)+)", text):
            nodes.setdefault(name, set()).update(re.findall(r"0x\S+ 0x\S+ \d+ (\S+)", rows))
    return {name: nodes for name, nodes in nodes.items() if OURS.match(name)}


def undefined():
    """The symbols that torch's libraries take from others: (name, version node or "")."""
    found = set()
    for file in TORCH.glob("*.so"):
        for line in output("nm", "-D", "--undefined-only", str(file)).splitlines():
            name, _, node = line.split()[-1].partition("@")
            found.add((name, node.lstrip("@")))
    return found


def write(library, nodes, symbols):
    """A library with these version nodes; a symbol without a node belongs to the library whose name it begins with."""
    stem = re.match(r"lib(\w+?)(_host)?\.so", library)[1]
    names = sorted(
        name for name, node in symbols if (node in nodes if node else name.startswith(stem))
    )
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder) / "none.c", Path(folder) / "none.map"
        source.write_text("".join(f"int {name}(void) {{ return 1; }}\n" for name in names) or "\n")
        script.write_text("".join(f"{node} {{ *; }};\n" for node in nodes))
        versions = [f"-Wl,--version-script={script}"] if nodes else []
        command = ["cc", "-shared", "-nostdlib", "-w", "-fno-builtin", str(source), *versions]
        output(*command, f"-Wl,-soname,{library}", "-o", str(TORCH / library))
    return len(names)


def main():
    if sys.platform != "linux":
        return
    there = {file.name for file in (SITE / "nvidia").glob("**/lib/*.so*")}
    missing = {name: nodes for name, nodes in wanted().items() if name not in there}
    symbols = undefined()
    count = sum(write(name, sorted(nodes), symbols) for name, nodes in sorted(missing.items()))
    if missing:
        (SITE / "without_gpu.pth").write_text(HIDES)
    print(f"{len(missing)} libraries with {count} functions stand for CUDA's")


main()
