"""A model split across two real RPC servers gives the local logits; a server that dies is one error, not the end."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest
import tiny
from commands import Run, assert_refused
from rpc_servers import Server, answering, free_port, running, wait_for

from via_sd_local import binding
from via_sd_local.errors import ModelError, NativeError
from via_sd_local.runtime import devices, rpc, rpc_server
from via_sd_local.runtime.context import Context
from via_sd_local.runtime.model import Model
from via_sd_local.runtime.placement import Placement
from via_sd_local.runtime.rpc_server import server_program
from via_sd_local.session.session import Session
from via_sd_local.session.settings import Settings
from via_sd_local.tiers.verifier import Verifier

pytestmark = pytest.mark.skipif("ggml-rpc" not in binding.build_info()["backends"], reason="built without RPC")
files, run, answer = commands.files, commands.run, commands.answer
Make = Callable[..., Model]
PROMPT = [1, 270, 280, 290, 300, 310]


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    with running(2) as both:
        yield both


def split(servers: list[Server], *shares: float) -> Placement:
    """Over both servers: half of the layers each, if nothing else is said."""
    return Placement(rpc_servers=tuple(server.endpoint for server in servers), tensor_split=shares or (1, 1))


def kept_on(caplog_text: str, endpoint: str) -> bool:
    return f"[{endpoint}] KV buffer size" in caplog_text


#
# the same logits
#


@pytest.mark.parametrize(
    ("name", "mask"),
    [
        ("llama", ""),
        ("llama", "2-3"),
        ("llama", "a1,f2,4"),
        ("qwen3", "1,a4"),
        ("gemma3", "6-8"),
        ("llama-moe", "f2,3"),
    ],
)
def test_a_split_model_has_the_local_models_logits(
    name: str, mask: str, servers: list[Server], tiny_model: Make, verifier: Callable[..., Verifier]
) -> None:
    """Bit for bit in full, slim and resumed passes and after rewinds: the servers' processor is this one."""
    spec = tiny.spec(name)
    remote, local = (
        verifier(tiny_model(spec, placement=placement), mask)
        for placement in (split(servers), Placement(flash_attn="on"))  # as llama.cpp chooses for servers
    )
    assert remote.why_no_resume == local.why_no_resume
    kinds: list[str] = []

    def both(run: Callable[[Verifier], Any]) -> None:
        assert np.array_equal(run(remote).copy(), run(local))

    def record(kind: str, _tokens: int, _seconds: float) -> None:
        kinds.append(kind)

    both(lambda tiers: tiers.full(PROMPT, len(PROMPT), recorder=record))
    for n in (1, 3, 2):
        block = PROMPT[:n]
        if mask:
            both(lambda tiers, block=block: tiers.slim(block, recorder=record))
            both(lambda tiers: tiers.full([], 1, recorder=record))
            both(lambda tiers, block=block: tiers.slim(block, recorder=record))
        both(lambda tiers, block=block: tiers.full(block, len(block), recorder=record))
        for tiers in (remote, local):
            tiers.rewind(tiers.n_kv - 1)
    assert set(kinds) == ({"full", "slim", "resume"} if mask else {"full"})
    assert remote.n_kv == local.n_kv


def test_layers_and_cache_lie_on_the_servers(
    servers: list[Server], tiny_model: Make, context: Callable[..., Context], caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("via_sd_local.llama_cpp").addHandler(caplog.handler)
    try:
        with caplog.at_level("INFO", "via_sd_local.llama_cpp"):
            context(tiny_model(tiny.spec("llama"), placement=split(servers)))
            assert [kept_on(caplog.text, server.endpoint) for server in servers] == [True, True]
            caplog.clear()
            context(tiny_model(tiny.spec("llama"), placement=split(servers, 0, 1)))
            assert [kept_on(caplog.text, server.endpoint) for server in servers] == [False, True]
            caplog.clear()
            # servers that some model of this process uses are not everybody's
            context(tiny_model(tiny.spec("llama")))
            assert "KV buffer size" in caplog.text
            assert not any(server.endpoint in caplog.text for server in servers)
    finally:
        logging.getLogger("via_sd_local.llama_cpp").removeHandler(caplog.handler)


def test_servers_devices_can_be_chosen_by_name(servers: list[Server], tiny_model: Make) -> None:
    endpoints = tuple(server.endpoint for server in servers)
    both = tiny_model(tiny.spec("llama"), placement=Placement(rpc_servers=endpoints))
    assert both.servers is not None
    names = [device.name for device in both.servers.devices]
    assert [device.description for device in both.servers.devices] == list(endpoints)
    placement = Placement(rpc_servers=endpoints, devices=(names[1],))
    assert [d.name for d in _chosen(placement, both.servers.devices)] == names[1:]
    tiny_model(tiny.spec("llama"), placement=placement)
    with pytest.raises(ValueError, match=f"devices has 'RPC99'; this build sees {names[0]}, {names[1]}"):
        tiny_model(tiny.spec("llama"), placement=Placement(rpc_servers=endpoints, devices=("RPC99",)))
    assert not {device.name for device in devices.local_devices()} & set(names)


def _chosen(placement: Placement, remote: list[devices.Device]) -> list[devices.Device]:
    from via_sd_local.runtime.loading import choose_devices

    return choose_devices(placement, remote)


def test_a_command_on_two_servers_answers_as_it_does_here(servers: list[Server], answer: Run) -> None:
    options = ("--drafter", "lookup", "--mask", "2-3", "--mode", "exact", "--json")
    there = answer(*options, "--rpc-servers", ",".join(server.endpoint for server in servers)).json
    assert there["text"] == answer(*options).json["text"]
    assert there["stats"]["passes"].keys() == answer(*options).json["stats"]["passes"].keys()


#
# servers that die
#


@pytest.mark.parametrize("which", [0, 1])
def test_a_server_that_dies_mid_answer_is_one_error_and_the_process_goes_on(which: int, files: Path) -> None:
    path = str(files / "llama.gguf")
    local = Settings(path, threads=1)
    prompt = PROMPT

    def text(session: Session) -> list[int]:
        return [token for step in session.engine.generate(prompt, max_tokens=12) for token in step.tokens]

    with running(2) as servers, Session(local) as here:
        expected = text(here)
        remote = Settings(path, threads=1, placement=split(servers))
        lost = servers[which].endpoint
        with Session(remote) as session:
            steps = session.engine.generate(prompt, max_tokens=12)
            assert [next(steps).tokens[0], next(steps).tokens[0]] == expected[:2]
            servers[which].kill()
            message = f"the RPC server {lost} no longer answers; start it and load llama.gguf again"
            with pytest.raises(NativeError, match=message):
                list(steps)
            with pytest.raises(NativeError, match=message):
                text(session)
            with pytest.raises(NativeError, match=message):
                Context(session.model, n_ctx=32, n_threads=1)
            assert text(here) == expected
        with pytest.raises(ModelError, match=f"the RPC server {lost} cannot be reached: Connection refused"):
            Session(remote)
        servers[which].start()
        with Session(remote) as again:
            assert text(again) == expected


@pytest.mark.parametrize("rows", [0, 1])
def test_a_server_lost_while_it_computes_is_an_error_and_no_row_of_zeros(
    rows: int,
    servers: list[Server],
    tiny_model: Make,
    context: Callable[..., Context],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`llama_decode` only begins the work; what is lost shows where results are read."""
    there = context(tiny_model(tiny.spec("llama"), placement=split(servers)))
    name = "llama_get_logits" if rows else "llama_synchronize"
    read = getattr(binding.llama, name)

    def lose(handle: int) -> object:
        monkeypatch.setattr(rpc, "_losses", lambda _endpoint: 99)
        return read(handle)

    monkeypatch.setattr(binding.llama, name, lose)
    with pytest.raises(NativeError, match=f"the RPC server {servers[0].endpoint} no longer answers"):
        there.decode(PROMPT, 0, rows)


def test_a_server_that_dies_while_a_model_is_loaded_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny.write(tmp_path / "m.gguf", tiny.spec("llama"))
    with running(1) as (server,):
        add = rpc._add

        def then_die(endpoint: str) -> list[devices.Device]:
            found = add(endpoint)
            monkeypatch.setattr(rpc, "_losses", dying(rpc._losses))
            return found

        def dying(losses: Callable[[str], int]) -> Callable[[str], int]:
            def count(endpoint: str) -> int:
                monkeypatch.setattr(rpc, "_losses", losses)
                before = losses(endpoint)
                server.kill()
                return before

            return count

        monkeypatch.setattr(rpc, "_add", then_die)
        with pytest.raises(ModelError, match=f"the RPC server {server.endpoint} was lost while the model was loading"):
            Model(path, Placement(rpc_servers=(server.endpoint,)))
        monkeypatch.setattr(rpc, "_add", add)
        server.start()
        Model(path, Placement(rpc_servers=(server.endpoint,))).close()


#
# what cannot be used
#


def test_a_server_that_is_not_there_is_an_error(tiny_model: Make, answer: Run) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    with pytest.raises(ModelError, match=f"the RPC server {endpoint} cannot be reached: Connection refused"):
        tiny_model(tiny.spec("llama"), placement=Placement(rpc_servers=(endpoint,)))
    assert_refused(answer("--rpc-servers", endpoint), f"the RPC server {endpoint} cannot be reached")
    assert_refused(answer("--rpc-servers", "nowhere"), "--rpc-servers has 'nowhere'; a server is host:port")


def test_what_is_no_rpc_server_is_told_apart() -> None:
    with (
        answering(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")) as endpoint,
        pytest.raises(ModelError, match=f"the program that answers at {endpoint} is not an RPC server of this version"),
    ):
        rpc.greet(endpoint)


def test_a_busy_server_is_told_apart_instead_of_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "TIMEOUT", 0.1)
    with (
        answering(lambda connection: connection.recv(1000) and connection.recv(1000)) as endpoint,
        pytest.raises(ModelError, match="did not answer within 0 seconds; it may be serving another process"),
    ):
        rpc.greet(endpoint)


def test_two_models_of_a_process_share_a_server(servers: list[Server], tiny_model: Make, monkeypatch: Any) -> None:
    placement = split(servers[:1], 1)
    first = tiny_model(tiny.spec("llama"), placement=placement)
    monkeypatch.setattr(rpc, "greet", lambda _endpoint: pytest.fail("a busy server would not answer a second greeting"))
    second = tiny_model(tiny.spec("llama"), placement=placement)
    first.close()
    tiny_model(tiny.spec("llama"), placement=placement).close()
    second.close()
    assert rpc._users[servers[0].endpoint] == 0


def test_a_build_without_rpc_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "has_rpc", lambda: False)
    with pytest.raises(ModelError, match="this build has no RPC backend; build with CMAKE_ARGS=-DVIA_SD_RPC=ON"):
        rpc.Servers(["127.0.0.1:50052"])
    monkeypatch.setattr(rpc_server, "LIBRARIES", Path("/nonexistent"))
    with pytest.raises(Exception, match="this build has no RPC server; build with"):
        server_program()


#
# the command
#


def test_the_command_serves_on_loopback_until_it_is_stopped() -> None:
    port = free_port()
    command = [str(commands.COMMAND), "rpc-server", "--port", str(port), "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(f"127.0.0.1:{port}")
            second = commands.spawn("rpc-server", "--port", port)
            assert_refused(second, f"the server cannot listen on 127.0.0.1:{port}: Address already in use")
        finally:
            process.terminate()
        out, err = process.communicate(timeout=20)
    assert f"endpoint       : 127.0.0.1:{port}" in out
    assert "warning" not in err.lower()


@pytest.mark.parametrize(("host", "warns"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_the_command_warns_where_others_can_reach_the_server(
    host: str, warns: bool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def execute(program: str, command: list[str]) -> None:
        assert program == command[0]
        started.append(command)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "execv", execute)
    port = free_port()
    result = run("rpc-server", "--host", host, "--port", port, "--devices", "CPU", "--cache", "--threads", "2")
    address = "127.0.0.1" if host == "localhost" else host
    options = f"--host {address} --port {port} --threads 2 --device CPU --cache"
    assert [command[1:] for command in started] == [options.split()]
    assert result.err.startswith(f"warning: anyone who can reach {host}:{port} can use, read and crash") == warns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", "example.org"), "host is 'example.org'; it must be an IPv4 address of this machine"),
        (("--host", "::1"), "host is '::1'"),
        (("--port", "0"), "port is 0; it must be from 1 to 65535"),
        (("--threads", "0"), "threads is 0; it must be from 1 to 512"),
    ],
)
def test_the_command_refuses_what_the_server_would_not_explain(
    options: tuple[str, ...], message: str, run: Run
) -> None:
    assert_refused(run("rpc-server", *options), message)
