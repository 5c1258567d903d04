"""A server of slots as people write it: HTTP by asyncio, bwrap for every command, a directory for every slot.

Arguments: the number of slots, a directory for them, and the bwrap command line without the command. It prints its
address and serves until it is killed. POST /execute takes the tools bash, read_file and write_file, each as
{"slot_id": "slot_0", "tool": "bash", "args": {"command": "..."}}, on connections that are kept.
"""
import asyncio
import json
import pathlib
import sys

COUNT, ROOT, BWRAP = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
SLOTS = {f"slot_{number}": ROOT / f"slot_{number}" for number in range(COUNT)}
TURNS = {name: asyncio.Lock() for name in SLOTS}


async def bash(workspace, command):
    line = [*BWRAP, "--bind", str(workspace), "/workspace", "/bin/bash", "-c", command]
    process = await asyncio.create_subprocess_exec(
        *line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await process.communicate()
    output = (stdout + stderr).decode("utf-8", "replace").strip()
    return {"success": process.returncode == 0, "output": output, "exit_code": process.returncode}


async def execute(request):
    name, args = request["slot_id"], request["args"]
    async with TURNS[name]:
        if request["tool"] == "bash":
            return await bash(SLOTS[name], args["command"])
        path = SLOTS[name] / args["path"]
        if request["tool"] == "read_file":
            return {"success": True, "output": path.read_text()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(args["content"])
        return {"success": True, "output": ""}


async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").lower().split("\r\n")
            length = next(int(line[15:]) for line in lines if line.startswith("content-length:"))
            answer = await execute(json.loads(await reader.readexactly(length)))
            body = json.dumps(answer).encode()
            head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            writer.write(head.encode() + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main():
    for workspace in SLOTS.values():
        workspace.mkdir(parents=True, exist_ok=True)
        workspace.chmod(0o777)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print("127.0.0.1:%d" % server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
