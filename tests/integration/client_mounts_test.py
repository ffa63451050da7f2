#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How `verbena` finds the export that a path lies in, and the MOUNT service that knows it."""
import ctypes
import os
import socket
import struct
import subprocess
import threading

import daemon
import peers
from client_test import UNREACHABLE, Client

NULL, MNT, UMNT, EXPORT = 0, 1, 3, 5
GETPORT = 3
SUCCESS, PROG_UNAVAIL, PROC_UNAVAIL = 0, 1, 3
NOENT, IO = 2, 5
NEW_NETWORK = 0x40000000 # CLONE_NEWNET


class Service:
    """Answers RPC by TCP: answer(program, procedure, arguments) yields an accept status and results, or None for what
    is passed on to `behind`."""

    def __init__(self, test, answer, port=0, behind=None):
        self.answer, self.behind = answer, behind
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()
        test.addCleanup(self.close)

    def accept(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError: # close()
                return
            self.threads.append(threading.Thread(target=self.serve, args=(connection,)))
            self.threads[-1].start()

    def record(self, connection):
        def take(size):
            data = b""
            while len(data) < size:
                more = connection.recv(size - len(data))
                if not more:
                    raise ConnectionResetError
                data += more
            return data
        return take(struct.unpack(">I", take(4))[0] & 0x7fffffff) # each one is whole

    def serve(self, connection):
        behind = socket.create_connection(("127.0.0.1", self.behind)) if self.behind else None
        try:
            while True:
                call = self.record(connection)
                xid, _, _, program, _, procedure, _, size = struct.unpack(">8I", call[:32])
                answer = self.answer(program, procedure, call[32 + size + 8:])
                if answer is None:
                    behind.sendall(struct.pack(">I", 0x80000000 | len(call)) + call)
                    reply = self.record(behind)
                else:
                    reply = struct.pack(">6I", xid, 1, 0, 0, 0, answer[0]) + answer[1]
                connection.sendall(struct.pack(">I", 0x80000000 | len(reply)) + reply)
        except OSError:
            pass
        finally:
            connection.close()
            if behind:
                behind.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join()


class Mounts(Client):
    query = "vers=3" # which alone has MOUNT

    def setUp(self):
        super().setUp()
        os.makedirs(self.there("a", "b"))
        self.write(self.there("a", "b", "f"), b"")
        self.asked = []

    def names(self, url):
        return self.run_client("ls", url).decode().split()

    def mount_service(self, exports, status=NOENT):
        """Its list is `exports`, None for one that it keeps to itself; it mounts /export and nothing else."""
        peer = peers.TcpPeer(self.daemon.port("tcp"))
        root = peer.mount()
        peer.close()

        def answer(_, procedure, arguments):
            if procedure == MNT:
                self.asked.append(peers.handle_behind(arguments, 0).decode())
                if self.asked[-1] == "/export":
                    return SUCCESS, struct.pack(">I", 0) + peers.opaque(root) + struct.pack(">2I", 1, 1)
                return SUCCESS, struct.pack(">I", status)
            if procedure == EXPORT and exports is None:
                return PROC_UNAVAIL, b""
            if procedure == EXPORT:
                one = b"".join(struct.pack(">I", 1) + peers.opaque(e.encode()) + struct.pack(">I", 0) for e in exports)
                return SUCCESS, one + struct.pack(">I", 0)
            return SUCCESS, b""

        return Service(self, answer)

    def url(self, path, mount):
        # Neither port stands where a URL has its port.
        return f"nfs+tcp://127.0.0.1{path}?nfsport={self.daemon.port('tcp')}&mountport={mount.port}"

    def test_the_longest_export_that_holds_the_path(self):
        # Beneath the names of the other exports the outer one has something else.
        os.makedirs(self.there("in", "deep", "outer"))
        os.makedirs(self.there("in-not", "outer"))
        for name in ("in", "deep"):
            os.makedirs(os.path.join(self.folder, name, "here-is-" + name))
        self.daemon.stop()
        self.daemon = self.start(
            "--export", os.path.join(self.folder, "in") + ":/export/in",
            "--export", os.path.join(self.folder, "deep") + ":/export/in/deep", export=":/export")
        top = self.base("tcp", "127.0.0.1")
        self.assertEqual(self.names(top + "/in"), ["here-is-in"])
        self.assertEqual(self.names(top + "/in/"), ["here-is-in"])
        self.assertEqual(self.names(top + "/in/deep"), ["here-is-deep"])
        self.assertEqual(self.names(top + "/in-not"), ["outer"])

    def test_one_of_the_list_is_mounted_and_nothing_else(self):
        mount = self.mount_service(["/export", "/", "/exp", "/export/a/b/c", "/export/a/bb"])
        self.assertEqual(self.names(self.url("/export/a/b", mount)), ["f"])
        self.assertEqual(self.asked, ["/export"])

    def test_without_a_list_ancestors_are_tried(self):
        for exports in (None, [], ["/elsewhere"]):
            self.asked = []
            self.assertEqual(self.names(self.url("/export/a/b", self.mount_service(exports))), ["f"])
            self.assertEqual(self.asked, ["/export/a/b", "/export/a", "/export"])

    def test_a_server_that_fails_is_not_asked_for_ancestors(self):
        self.completed("ls", self.url("/export/a/b", self.mount_service(None, status=IO)), code=UNREACHABLE)
        self.assertEqual(self.asked, ["/export/a/b"])

    # A network of its own, since port 111 may have its owner here.
    def test_mount_is_asked_for_at_the_same_port_and_then_through_rpcbind(self):
        failures = []

        def alone():
            try:
                if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK) != 0:
                    self.fail("a network of its own needs CAP_SYS_ADMIN: run as root")
                subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
                self.daemon = self.start(export=":/export")
                self.through_rpcbind()
            except BaseException as e: # pylint: disable=broad-exception-caught
                failures.append(e)

        self.daemon.stop()
        thread = threading.Thread(target=alone)
        thread.start()
        thread.join()
        if failures:
            raise failures[0]

    def test_a_command_that_has_ended_is_in_no_list(self):
        source = self.write(os.path.join(self.folder, "one"), b"one")
        for command in (("ls", self.top), ("stat", self.top + "/a"), ("df", self.top), ("-q", "cp", source, self.top + "/one"),
                        ("mv", self.top + "/one", self.top + "/two"), ("rm", self.top + "/two")):
            self.run_client(*command)
            self.assertEqual(self.run_json("mounts", self.top)["mounts"], [], command)

    def test_a_server_that_does_not_answer_umnt_keeps_nobody(self):
        released = threading.Event()
        asked = []

        def answer(program, procedure, arguments):
            if (program, procedure) != (peers.MOUNT, UMNT):
                return None
            asked.append(peers.handle_behind(arguments, 0).decode())
            released.wait()
            return SUCCESS, b""

        front = Service(self, answer, behind=self.daemon.port("tcp"))
        self.addCleanup(released.set)
        # It ends although nobody has answered it yet.
        self.assertEqual(self.names(f"nfs+tcp://127.0.0.1:{front.port}/export/a/b"), ["f"])
        self.assertEqual(asked, ["/export"])

    def through_rpcbind(self):
        mount = self.mount_service(["/export"])
        seen = []

        def rpcbind(_, procedure, arguments):
            if procedure == GETPORT:
                seen.append(("rpcbind", *struct.unpack(">3I", arguments[:12])))
                return SUCCESS, struct.pack(">I", mount.port)
            return SUCCESS, b""

        def without_mount(program, procedure, _):
            if program != peers.MOUNT:
                return None
            seen.append(("nfs", program, procedure))
            return PROG_UNAVAIL, b""

        Service(self, rpcbind, port=111)
        front = Service(self, without_mount, behind=self.daemon.port("tcp"))
        self.assertEqual(self.names(f"nfs+tcp://127.0.0.1:{front.port}/export/a/b"), ["f"])
        self.assertEqual(seen, [("nfs", peers.MOUNT, NULL), ("rpcbind", peers.MOUNT, 3, socket.IPPROTO_TCP)])
        self.assertEqual(self.asked, ["/export"])
        # Who answers both there needs no rpcbind.
        seen.clear()
        self.assertEqual(self.names(f"nfs+tcp://127.0.0.1:{self.daemon.port('tcp')}/export/a/b"), ["f"])
        self.assertEqual(seen, [])


if __name__ == "__main__":
    daemon.main()
