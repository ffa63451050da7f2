#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peers that break the rules towards a device of the kernel: raw_peer.py RAW_VERBS ADDRESS PORT WHAT. Each does one thing to
one connection or a few, and exits 0 when they ended as they must."""
import itertools
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "integration"))

import peers # pylint: disable=wrong-import-position
from peers import Accepted, Calls, IwarpPeer, call_message # pylint: disable=wrong-import-position

MIB = 1 << 20
PATIENCE = 60_000 # milliseconds
SHORT = 5_000 # of what is said at once, if at all
PRIVATE = bytes.fromhex("f6ab0e1801000303") # RFC 8797: version 1, 4 KiB both ways


class Ended(Exception):
    pass


class RawPeer(Calls):
    message = IwarpPeer.message

    def __init__(self, receives=64, private_data=PRIVATE):
        self.process = subprocess.Popen([RAW_VERBS, ADDRESS, PORT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.under_way = 0 # Sends that are not told to be done
        self.outcome = self.ask("connect", receives, private_data.hex())
        if self.outcome[0] == "up" and receives:
            self.greet()

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline().split()
        assert line, "raw_verbs ended"
        return line

    def greet(self):
        """A call, or two: siw leaves in the socket now and then what comes while it sets the connection up, until more comes."""
        unanswered, once_more = self.send_null(), True
        while unanswered:
            what, *rest = self.ask("wait", SHORT if once_more else PATIENCE)
            if what == "nothing" and once_more:
                unanswered, once_more = unanswered + self.send_null(), False
            elif what == "received":
                unanswered -= 1
            else:
                self.sent(what, rest)

    def send_null(self):
        xid = next(self.xids)
        self.send(self.message(xid, call_message(xid, 0)))
        return 1

    def send(self, message):
        self.ask("send", message.hex())
        self.under_way += 1

    def sent(self, what, rest):
        if (what, rest) != ("done", ["success"]):
            raise Ended(what, *rest)
        self.under_way -= 1

    def memory(self, size):
        """(key, address) of memory that the server may read and write."""
        _, key, address = self.ask("memory", size)
        return int(key), int(address)

    def receive(self):
        """The next message; Ended when the connection did."""
        while True:
            what, *rest = self.ask("wait", PATIENCE)
            if what == "received":
                return bytes.fromhex(rest[0])
            self.sent(what, rest)

    def call(self, procedure, arguments=b"", **more):
        xid = next(self.xids)
        self.send(self.message(xid, call_message(xid, procedure, arguments, **more)))
        reply = self.receive()
        got, _, _, proc = struct.unpack(">4I", reply[:16])
        assert (got, proc) == (xid, 0), (got, xid, proc)
        return Accepted(reply[28:])

    def write_call(self, handle, size, key, address):
        xid = next(self.xids)
        rpc = call_message(xid, peers.WRITE, peers.opaque(handle) + struct.pack(">Q3I", 0, size, 0, size))
        return self.message(xid, rpc, reads=[(len(rpc), key, size, address)])

    def begin_write(self, handle, size, key, address):
        self.send(self.write_call(handle, size, key, address))

    def begin_read(self, handle, size, key, address):
        xid = next(self.xids)
        self.send(self.message(xid, call_message(xid, peers.READ, peers.read_arguments(handle, 0, size)),
                               writes=[[(key, size, address)]]))

    def drain(self):
        """Until all that went before is told, so that what comes next is of what comes next."""
        while self.under_way:
            what, *rest = self.ask("wait", PATIENCE)
            self.sent(what, rest)

    def must_not_succeed(self, act):
        """What was asked for last ends the connection."""
        outcome = self.ask("wait", PATIENCE)
        print(act, *outcome)
        allowed = {
            # The server takes no Reads at all, which rxe says before it looks at the key.
            "rxe": {"write": [["done", "remote_access_error"]], "read": [["done", "remote_invalid_request_error"]]},
            # A Write is done when it is sent, and what the server thinks of it follows; a Read is told by the connection's end.
            "siw": {"write": [["done", "success"]],
                    "read": [["done", "Work_Request_Flushed_Error"], ["event", "RDMA_CM_EVENT_DISCONNECTED"]]},
        }[os.environ["LAB_DEVICE"]]
        assert outcome in allowed[act], outcome
        if outcome[0] == "done":
            self.must_end()

    def must_end(self):
        try:
            while True:
                self.receive()
        except Ended as ended:
            assert ended.args[0] != "nothing", "the connection stands, and nothing came of it"

    def die(self):
        self.process.kill()
        self.process.wait()

    def file(self, name="target"):
        return self.create(self.mount(), name)


def forged_keys():
    """RDMA Writes and Reads of the server's memory, by keys that it never gave."""
    for act, key in itertools.product(("write", "read"), (0, random.getrandbits(32))):
        peer = RawPeer()
        peer.mount()
        peer.drain()
        peer.ask(act, key, random.getrandbits(40) & ~4095)
        peer.must_not_succeed(act)
        peer.die()


def bad_chunk_keys():
    """Chunks whose keys are forged, or were good once: the server's RDMA Read or Write fails."""
    for begin in (RawPeer.begin_write, RawPeer.begin_read):
        for stale in (False, True):
            peer = RawPeer()
            handle = peer.lookup(peer.mount(), "file") if begin is RawPeer.begin_read else peer.file()
            key, address = peer.memory(MIB)
            if stale:
                peer.ask("forget", key)
            begin(peer, handle, MIB, key if stale else key ^ 0x00abcd00, address)
            peer.must_end()
            peer.die()


def no_receives():
    """A requester without a receive for the reply."""
    peer = RawPeer(receives=0)
    time.sleep(1) # in place of `greet`
    peer.send_null()
    peer.must_end()
    peer.die()


def private_data():
    """What is no private message of RFC 8797, or a wrong one, is answered as if there were none."""
    for data in (b"", bytes(56), b"\xff" * 56, bytes.fromhex("f6ab0e18ff"), bytes.fromhex("f6ab0e18ffffffff"), os.urandom(56)):
        peer = RawPeer(private_data=data)
        assert peer.outcome[0] == "up", peer.outcome
        assert peer.mount()
        peer.ask("disconnect")
        peer.must_end()
        peer.die()


def credits():
    """More calls at once than there are credits for, and maybe than there are receives."""
    peer = RawPeer(receives=1000)
    handle = peer.file()
    key, address = peer.memory(MIB)
    for _ in range(600):
        peer.begin_write(handle, MIB, key, address)
    peer.must_end()
    peer.die()


def vanishing():
    """Gone in the middle of the server's RDMA Reads and Writes."""
    for _ in range(4):
        peer = RawPeer()
        handle = peer.file()
        file = peer.lookup(peer.mount(), "file")
        key, address = peer.memory(MIB)
        for _ in range(8):
            peer.begin_write(handle, MIB, key, address)
            peer.begin_read(file, MIB, key, address)
        peer.ask("disconnect")
        peer.die()


def crowd():
    """Connection requests by the hundred; what is too much is rejected, and the next one is served."""
    peer = RawPeer()
    _, established, rejected, other = peer.ask("crowd", COUNT, 20_000)
    print(f"of {COUNT}: {established} established, {rejected} rejected, {other} neither")
    assert int(established) + int(rejected) + int(other) >= COUNT * 9 // 10
    assert int(rejected) > 0
    assert peer.mount()
    peer.die()


def silence():
    """RDMA Reads that are never answered, by a queue pair in a state in which rxe drops all requests."""
    peer = RawPeer()
    call = peer.write_call(peer.file(), MIB, *peer.memory(MIB)).hex()
    # The server stands still until then, so that it reads nothing before.
    server = int(os.environ["LAB_SERVER"])
    os.kill(server, signal.SIGSTOP)
    try:
        peer.ask("silence", 32, call)
    finally:
        os.kill(server, signal.SIGCONT)
    peer.must_end()
    peer.die()


def rejects():
    """Our client meets somebody who rejects it."""
    peer = RawPeer()
    peer.ask("listen", int(PORT) + 1)
    with subprocess.Popen([os.path.join(os.environ["LAB_BUILD"], "services/verbena"), "ls",
                           f"nfs+rdma://{ADDRESS}:{int(PORT) + 1}/export?mountport=2049"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as client:
        assert peer.ask("reject", PATIENCE) == ["rejected"]
        said = client.communicate(timeout=60)[0]
    assert client.returncode == 3, (client.returncode, said)
    for part in ("cannot connect to", "the peer rejected the connection", "a service answers there and wants none of this"):
        assert part in said, said
    peer.die()


# --- clients without a device, on a listener of siw ---

def iwarp(**more):
    peer = IwarpPeer(int(PORT), host=ADDRESS, source=ELSEWHERE, **more)
    time.sleep(1) # siw may leave in the socket what comes while it sets the connection up
    return peer


def start_up():
    """A connection that has not begun to speak iWARP."""
    return socket.create_connection((ADDRESS, int(PORT)), peers.LIMIT, (ELSEWHERE, 0))


def files():
    """Handles of an empty file and of one that holds 2 MiB."""
    peer = iwarp()
    root = peer.mount()
    handles = peer.create(root, "target"), peer.lookup(root, "file")
    peer.close()
    return handles


def unanswered_reads():
    handles = files()
    for _ in range(2):
        peer = iwarp()
        peers.in_an_rdma_read(peer, *handles)
        peer.ended()
        peer.close()


def credits_one_by_one():
    """More calls than there are credits for, each of which finds a receive."""
    target, _ = files()
    peer = iwarp()
    peer.use_credits()
    for calls in (130, 7): # 128 credits, and 8 messages that need none
        for _ in range(calls):
            peer.begin_write(target, 0, b"", length=4096)
        time.sleep(1)
    peer.ended()
    peer.close()


def terminates():
    """Between calls and beside them."""
    handles = files()
    for begin in (lambda *_: None, *peers.BESIDE_CALLS):
        peer = iwarp()
        begin(peer, *handles)
        peer.terminate()
        peer.ended()
        peer.close()


def half_open():
    """Gone without a word: with the server's RDMA Reads on their way, with replies, with nothing."""
    handles = files()
    for begin in (peers.in_an_rdma_read, peers.before_its_replies, lambda *_: None):
        peer = iwarp(receive_buffer=4096)
        begin(peer, *handles)
        peers.vanish(peer.socket)


def stops_reading():
    """For longer than the server waits for anything else; it stands until the peer goes."""
    _, file = files()
    peer = iwarp(receive_buffer=4096)
    peer.use_credits() # with fewer it is ended for exceeding them
    peer.ask_for(file, 5 * peers.IN_FLIGHT)
    time.sleep(20)
    peers.reset(peer.socket)


def byte_a_second():
    _, file = files()
    reader = iwarp(receive_buffer=4096)
    reader.use_credits()
    reader.ask_for(file, peers.IN_FLIGHT)
    writer = iwarp()
    call = peers.fpdu(peers.untagged(peers.OP_SEND, writer.message(1, call_message(1, 0))))
    for octet in call[:20]:
        writer.socket.send(bytes([octet]))
        assert reader.socket.recv(1)
        time.sleep(1)
    peers.reset(reader.socket)
    peers.reset(writer.socket)


def no_start_up():
    """What is no MPA Request, or none in time, never reaches the server; the listener goes on."""
    peers.vanish(start_up())
    slow = start_up()
    try:
        for octet in peers.mpa_request(private_data=bytes(100)):
            slow.send(bytes([octet]))
            time.sleep(1)
        raise AssertionError("a start-up of two minutes was waited for")
    except (BrokenPipeError, ConnectionResetError):
        slow.close()
    wrong = start_up()
    wrong.sendall(peers.fpdu(peers.untagged(peers.OP_TERMINATE, peers.TERMINATE, queue=2)))
    assert peers.until_closed(wrong) == b""
    wrong.close()
    files()


ELSEWHERE = "198.51.100.2" # memory is shared out by address, and the kernel's client has the other one
COUNT = 300
RAW_VERBS, ADDRESS, PORT, WHAT = sys.argv[1:]
{f.__name__: f for f in (forged_keys, bad_chunk_keys, no_receives, private_data, credits, vanishing, crowd, silence, rejects,
                         unanswered_reads, credits_one_by_one, terminates, half_open, stops_reading, byte_a_second,
                         no_start_up)}[WHAT]()
