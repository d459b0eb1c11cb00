"""Training, evaluation, prediction and serving in a network namespace that has nothing but the loopback interface."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ALONE = ["unshare", "--user", "--map-root-user", "--net"]

PROGRAM = """
import fcntl, json, socket, struct, subprocess, sys
from pathlib import Path
from served import XC, served

with socket.socket() as device:  # the namespace's own loopback is down at first
    fcntl.ioctl(device, 0x8914, struct.pack("16sH14s", b"lo", 1, b""))  # SIOCSIFFLAGS, IFF_UP
try:
    socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError as error:
    assert error.errno == 101, error  # ENETUNREACH
else:
    sys.exit("there is a network")

rows = [{"text": f"{word} number {i}", "labels": [word]} for word in ("dog", "cat", "pear") for i in range(9)]
Path("train.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
def run(*words, **more):
    ran = subprocess.run([*XC, *words], capture_output=True, text=True, **more)
    assert ran.returncode == 0, (words, ran.stderr)
    return ran.stdout

run("train", "train.jsonl", "-o", "model")
run("train", "train.jsonl", "-o", "tree", "-a", "label_tree")
run("evaluate", "model", "train.jsonl", "--split", "train", "--json")
assert "cat" in run("predict", "model", "-", input="cat number 3\\n").splitlines()[1]
run("verify", "model")
with served(Path("model")) as server:
    answer = server.predict(texts=["dog number 4"], k=1)
    assert answer.status == 200 and "dog" in json.dumps(answer.content), answer
    assert server.ask("GET", "/").status == 200
    assert server.stop() == 0
print("all of it")
"""


@pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode != 0,
    reason="network namespaces need Linux and leave to make them",
)
def test_nothing_needs_a_network(tmp_path: Path) -> None:
    command = [*ALONE, sys.executable, "-c", PROGRAM]
    ran = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=False
    )
    assert ran.stdout.endswith("all of it\n"), ran.stdout + ran.stderr
