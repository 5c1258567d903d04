"""A client of the slot-server API as trainers write them: the standard library alone, and nothing of this project."""

import base64
import hashlib
import io
import json
import sys
import tarfile
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

BASE = sys.argv[1].rstrip("/")


def call(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(BASE + path, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def tool(slot, name, timeout=30.0, **args):
    request = {"slot_id": slot, "tool": name, "args": args, "execution_id": f"{slot}-{name}", "timeout": timeout}
    status, answer = call("/execute", request)
    assert status == 200 and answer["execution_id"] == f"{slot}-{name}", answer
    assert set(answer) == {"success", "output", "error", "execution_id", "metadata"}, answer
    return answer


def good(slot, name, **args):
    answer = tool(slot, name, **args)
    assert answer["success"] and answer["error"] == "", answer
    return answer["output"]


def trajectory(slot):
    program = "def answer():\n    return 41\n\nprint(answer())\n"
    written = good(slot, "write_file", path="src/program.sh", content="echo 41\n")
    assert written == "Successfully wrote 8 bytes to src/program.sh", written
    good(slot, "write_file", path="src/program.py", content=program)
    assert good(slot, "bash", command="sh src/program.sh") == "41"
    assert good(slot, "bash", command="grep -rn 'return 41' src") == "src/program.py:2:    return 41"
    good(slot, "bash", command="sed -i 's/41/42/' src/program.sh src/program.py")
    assert good(slot, "bash", command="sh src/program.sh") == "42"
    assert good(slot, "read_file", path="src/program.py") == program.replace("41", "42")
    failed = tool(slot, "bash", command="sh src/none.sh")
    assert not failed["success"] and failed["error"].startswith("Exit code: "), failed
    good(slot, "bash_stateful", command="cd src; export WHERE=$(pwd)")
    assert good(slot, "bash_stateful", command="echo $WHERE") == "/workspace/src"
    good(slot, "tmux", action="start", pane_width=100, pane_height=30)
    good(slot, "tmux", action="send_keys", keys=["sh program.sh", "Enter"], block=True, max_wait_s=20)
    assert "42" in good(slot, "tmux", action="capture").splitlines()
    cast = good(slot, "tmux", action="stream")
    assert json.loads(cast.splitlines()[0])["version"] == 2
    status, read = call("/artifacts/read", {"slot_id": slot, "path": "src/program.sh", "include_sha256": True})
    assert status == 200 and read["sha256"] == hashlib.sha256(b"echo 42\n").hexdigest(), read
    status, listed = call("/artifacts/list", {"slot_id": slot, "path": "src"})
    assert [entry["path"] for entry in listed["entries"]] == ["src/program.py", "src/program.sh"], listed
    status, archive = call("/artifacts/archive", {"slot_id": slot, "path": "src"})
    packed = tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive["content"])))
    assert packed.extractfile("src/program.sh").read() == b"echo 42\n"
    assert archive["entry_count"] == len(packed.getnames()) == 2
    late = tool(slot, "bash", timeout=0.5, command="sleep 60")
    assert late["error"] == "Command timed out after 0.5s" and late["metadata"]["timeout"], late
    status, reset = call("/reset", {"slot_id": slot})
    assert reset["output"] == f"Reset workspace for {slot}", reset
    assert good(slot, "bash", command="ls -A") == ""
    return slot


status, health = call("/health")
assert health["status"] == "ok" and health["bwrap_available"] is True, health
names = [slot["slot_id"] for slot in call("/slots")[1]["slots"]]
assert names == [f"slot_{number}" for number in range(health["slots"])], names
with ThreadPoolExecutor(len(names)) as trainers:
    assert list(trainers.map(trajectory, names)) == names
batch = [{"slot_id": name, "tool": "bash", "args": {"command": f"echo {name}"}} for name in names * 3]
status, answers = call("/batch", batch)
assert [answer["output"] for answer in answers] == names * 3, answers
assert call("/artifacts/read", {"slot_id": names[0], "path": "none"}) == (404, {"success": False, "error": "Not found: none"})
print("played", len(names))
