#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`verbena admin opens`, `locks` and `evict` of a real verbenad: what clients have is shown by host and file, and one that an operator
ends changes nothing any more, by whichever transport."""
import json
import os
import struct
import subprocess
import time

import admin_test
import daemon
import hung_disk
import peers
from peers import TcpPeer
from pnfs_client import Client, Refused, words
from pnfs_test import WithLayouts

EXCHANGE_ID, LOCK = 42, 12
DENIED, DELAY = 10010, 10008


class Admin:
    admin, rows, path = admin_test.Admin.admin, admin_test.Admin.rows, admin_test.Admin.path


class Clients4(Admin, WithLayouts):
    def lock(self, client, handle, stateid, first, size):
        return client.on(handle, LOCK, words(2, 0) + struct.pack(">QQ", first, size) + words(1, 0) + stateid + words(0)
                         + struct.pack(">Q", client.id) + peers.opaque(b"locker"))

    def id_of(self, name):
        row, = (row for row in self.rows("clients") if row["name"] == name)
        return row["client_id"]

    def test_what_clients_have_is_shown_by_host_and_file(self):
        two = self.new_client(b"two")
        handle, stateid, _, _ = self.with_content(b"file", blocks=1)
        self.lock(self.client, handle, stateid, 0, 10)
        other, of_other = two.open(self.root, b"other")
        self.lock(two, other, of_other, 5, 2**64 - 1)
        opens = self.rows("opens")
        self.assertEqual({(row["client"], row["address"], row["export"], row["kind"], row["access"], row["deny"], row["state"])
                          for row in opens},
                         {("one", "127.0.0.1", "/export", "open", "read+write", "none", "held"),
                          ("one", "127.0.0.1", "/export", "layout", "read+write", None, "held"),
                          ("two", "127.0.0.1", "/export", "open", "read+write", "none", "held")})
        locks = {row["client"]: row for row in self.rows("locks")}
        self.assertEqual({(name, row["type"], row["first"], row["last"], row["owner"], row["state"]) for name, row in locks.items()},
                         {("one", "write", 0, 9, b"locker".hex(), "held"), ("two", "write", 5, None, b"locker".hex(), "held")})
        # One file, one client, one export.
        self.assertEqual({row["file"] for row in opens if row["client"] == "one"}, {"/file"})
        self.assertEqual((locks["one"]["file"], locks["two"]["file"]), ("/file", "/other"))
        handle_of_one = locks["one"]["handle"]
        self.assertEqual({row["handle"] for row in opens if row["client"] == "one"}, {handle_of_one})
        self.assertNotEqual(locks["two"]["handle"], handle_of_one)
        for file in (handle_of_one, "/file"):
            self.assertEqual(self.rows("locks", "file", file), [locks["one"]])
        self.assertEqual(self.rows("locks", "file", "/fil"), [])
        self.assertIn("no file file: write its path below the export", self.admin("locks", "file", "file", status=1))
        for who in ("two", locks["two"]["client_id"]):
            self.assertEqual(self.rows("locks", "client", who), [locks["two"]])
        self.assertEqual(len(self.rows("locks", "client", "127.0.0.1")), 2)
        self.assertEqual(self.rows("locks", "export", "/other"), [])
        self.assertIn("no export /nowhere", self.admin("locks", "export", "/nowhere", status=1))
        self.assertIn("of client whose value?", self.admin("opens", "client", status=1))
        clients = {row["name"]: row for row in self.rows("clients")}
        self.assertEqual({(name, row["version"], row["opens"], row["locks"], row["delegations"], row["layouts"])
                          for name, row in clients.items()}, {("one", "4.1", 1, 1, 0, 1), ("two", "4.1", 1, 1, 0, 0)})

    def test_a_client_that_is_evicted_changes_nothing(self):
        two = self.new_client(b"two")
        handle, stateid, layout, data = self.with_content(b"file", blocks=1)
        data.put(layout, 0, b"early")
        self.lock(self.client, handle, stateid, 0, 10)
        there, of_two = two.open(self.root, b"file", create=False)
        self.refused(DENIED, self.lock, two, there, of_two, 0, 1)
        before = set(self.ports())
        ended, connections = self.rows("evict", self.id_of("one"))
        self.assertEqual((ended["kind"], ended["name"], ended["opens"], ended["locks"], ended["layouts"], ended["sessions"],
                          ended["remains"], ended["kept_out_seconds"]), ("NFS 4.1", "one", 1, 1, 1, 1, None, None))
        self.assertEqual((connections["kind"], connections["connections"], connections["remains"]), ("connections", 1, None))
        # At once, whatever it sends: by RPC, by RDMA.
        self.lock(two, there, of_two, 0, 1)
        with self.assertRaises((peers.Terminated, OSError)):
            data.put(layout, 0, b"late")
            data.put(layout, 0, b"late")
        with self.assertRaises((AssertionError, OSError)):
            self.client.write(handle, stateid, 0, b"late")
        self.assertEqual(two.read(there, of_two, 0, 8), b"earlyaaa")
        self.assertEqual(len(before - set(self.ports())), 1) # the other one's is there still
        # It comes back as a client that has nothing, and is told so of what it had.
        again = self.new_client(b"one")
        with self.assertRaises(Refused):
            again.write(handle, stateid, 0, b"late")
        handle, stateid = again.open(self.root, b"file", create=False)
        again.write(handle, stateid, 20, b"anew")
        self.assertEqual(two.read(there, of_two, 0, 24), b"earlyaaa" + b"a" * 12 + b"anew")

    def ports(self):
        return [row["peer"] for row in self.rows("connections")]

    def test_a_client_is_kept_out_by_its_name(self):
        ended, _ = self.rows("evict", "one", "for=600")
        self.assertEqual((ended["name"], ended["kept_out_seconds"], ended["remains"]), ("one", 600, None))
        with self.assertRaises(Refused) as told:
            self.new_client(b"one")
        self.assertEqual((told.exception.operation, told.exception.status), (EXCHANGE_ID, DELAY))
        self.daemon.log_with(r"peers: turned away peer=127\.0\.0\.1 client=one reason=evicted ")
        self.new_client(b"two").look_up(b"export")
        self.rows("evict", "one", "0")
        self.new_client(b"one").look_up(b"export")

    def kept_out(self):
        return [(row["name"], row["address"]) for row in self.rows("evict")]

    def test_a_client_is_let_in_by_its_id_or_its_name(self):
        for named_by_id, let_in_by_id in ((True, True), (True, False), (False, True)):
            client_id = self.id_of("one")
            self.rows("evict", client_id if named_by_id else "one", "600")
            self.assertEqual(self.kept_out(), [("one", None)])
            with self.assertRaises(Refused):
                self.new_client(b"one")
            let_in, = self.rows("evict", client_id if let_in_by_id else "one", "0")
            self.assertEqual((let_in["kind"], let_in["kept_out_seconds"]), ("let in", 0))
            self.assertEqual(self.kept_out(), [])
            self.new_client(b"one").look_up(b"export")

    def test_nobody_is_let_in_by_other_words(self):
        self.assertIn("nobody is kept out now", self.admin("evict", "one", "0", status=1))
        self.rows("evict", "127.0.0.9", "600")
        client_id = self.id_of("one")
        self.rows("evict", client_id, "600")
        told = self.admin("evict", "somebody", "0", status=1)
        self.assertIn("nobody is kept out as somebody", told)
        self.assertIn("kept out are 127.0.0.9, " + client_id, told)
        self.assertEqual(self.kept_out(), [(None, "127.0.0.9"), ("one", None)])

    def test_who_was_kept_out_long_enough_is_not_shown(self):
        self.rows("evict", "127.0.0.9", "1")
        end = time.monotonic() + peers.LIMIT
        while self.rows("evict"):
            self.assertLess(time.monotonic(), end)

    def test_nobody_is_named_so(self):
        told = self.admin("evict", "somebody", status=1)
        self.assertIn("no client and no connection of somebody", told)
        self.assertIn("there are one at 127.0.0.1", told)
        self.assertIn('"soon" is no time to keep a client out', self.admin("evict", "one", "soon", status=1))
        self.client.look_up(b"export")


class Files4(Admin, daemon.DaemonTest):
    """Clients of version 4 with files of a folder of this host."""

    def serve(self, *more):
        os.chmod(self.data, 0o777)
        return self.start("--shards", "2", "--lease", "5", *more, export=":/export,clients=127.0.0.0/8")

    def connect(self, d, name):
        client = Client(d.port("tcp"), name)
        self.addCleanup(client.close)
        return client.connect()

    def test_a_file_is_shown_by_the_path_that_it_has_now(self):
        client = self.connect(self.serve(), b"one")
        os.mkdir(os.path.join(self.data, "folder"))
        # What a terminal or a program that reads lines would obey.
        name = b"line\nno \xff UTF-8 \x1b[2J"
        there = os.path.join(os.fsencode(self.data), b"folder", name)
        with open(there, "wb"):
            os.chmod(there, 0o666)
        client.open(client.look_up(b"export", b"folder"), name, create=False)
        shown, = self.rows("opens")
        self.assertEqual(shown["file"], "/folder/line\nno \ufffd UTF-8 \x1b[2J")
        lines = self.admin("opens").splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertNotIn("\x1b", lines[1])
        self.assertIn("/folder/line\\012no", lines[1])
        os.rename(there, os.path.join(os.fsencode(self.data), b"b"))
        shown, = self.rows("opens", "file", "/b")
        self.assertEqual(self.rows("opens", "file", shown["handle"]), [shown])
        os.unlink(os.path.join(self.data, "b"))
        shown, = self.rows("opens")
        self.assertEqual(shown["file"], "/b (deleted)")

    def test_grace_tells_who_did_not_come_back(self):
        d = self.serve()
        told, = self.rows("grace")
        self.assertEqual((told["grace"], told["seconds_left"], told["clients"], told["absent"]), ("over", None, 0, 0))
        for name in (b"one", b"two", b"three"):
            client = self.connect(d, name)
            client.open(client.look_up(b"export"), name)
        self.assertEqual(d.stop(), 0)
        d = self.serve()
        told, = self.rows("grace")
        self.assertEqual((told["grace"], told["clients"], told["done"], told["not_back"]), ("runs", 3, 0, ["one", "three", "two"]))
        self.assertGreater(told["seconds_left"], 0)
        self.connect(d, b"two") # which says that it is done
        told, = self.rows("grace")
        self.assertEqual((told["done"], told["absent"], told["are_back"], told["not_back"]), (1, 2, [], ["one", "three"]))
        self.assertEqual((d.metric("verbena_nfs4_grace_recorded_clients"), d.metric("verbena_nfs4_grace_done_clients"),
                          d.metric("verbena_nfs4_grace_absent_clients")), (3, 1, 2))
        d.log_with(r"nfs: grace is over.* clients=3 done=1 .*absent=2 .*not_back=\"?one, three")
        told, = self.rows("grace")
        self.assertEqual((told["grace"], told["done"], told["not_back"]), ("over", 1, ["one", "three"]))
        self.assertEqual(d.metric("verbena_nfs4_grace_absent_clients"), 2)
        self.assertIn("one, three", self.admin("grace"))


class Addresses(Admin, daemon.DaemonTest):
    def test_a_client_of_version_3_is_kept_out_by_its_address(self):
        d = self.start("--shards", "2", export=":/export,clients=127.0.0.0/8")
        here, there = TcpPeer(d.port("tcp")), TcpPeer(d.port("tcp"), source="127.0.0.2")
        for caller in (here, there):
            caller.mount()
        self.assertEqual([row["path"] for row in self.rows("mounts")], ["/export", "/export"])
        connections, = self.rows("evict", "127.0.0.2", "600")
        self.assertEqual((connections["kind"], connections["address"], connections["connections"], connections["kept_out_seconds"],
                          connections["remains"]), ("connections", "127.0.0.2", 1, 600, None))
        kept_out = TcpPeer(d.port("tcp"), source="127.0.0.2")
        for caller in (there, kept_out):
            with self.assertRaises(OSError):
                caller.nfs(0)
        # Nor over RDMA.
        with self.assertRaises((AssertionError, OSError)):
            peers.IwarpPeer(d.port("iwarp"), source="127.0.0.2").mount()
        self.assertEqual(here.nfs(0).status, 0)
        d.log_with(r"peers: turned away peer=127\.0\.0\.2 \S+=tcp reason=evicted ")
        self.assertGreater(d.metric('verbena_refused_total{of="connection",reason="evicted"}'), 1)
        self.assertEqual(self.rows("evict", "127.0.0.2", "0")[0]["kind"], "let in")
        again = TcpPeer(d.port("tcp"), source="127.0.0.2")
        again.mount()
        for caller in (here, there, kept_out, again):
            caller.close()

    def test_a_call_that_hangs_at_a_disk_is_named(self):
        folder = os.path.join(self.folder, "hung")
        os.mkdir(folder)
        disk = hung_disk.HungDisk(folder)
        self.addCleanup(disk.close)
        d = self.start("--shards", "2", "--export", folder + ":/hung,handles=path")
        caller, other = TcpPeer(d.port("tcp")), TcpPeer(d.port("tcp"))
        root = caller.mount("/hung")
        other.mount()
        disk.hang()
        caller.send(peers.call_message(7, 1, peers.opaque(root)))
        disk.wait_for(1)
        peer = "127.0.0.1:%d" % caller.socket.getsockname()[1]
        connections, = self.rows("evict", "127.0.0.1")
        self.assertEqual(connections["connections"], 2)
        self.assertIn("1 call has not ended, and may still change files", connections["remains"])
        self.assertIn(peer, connections["remains"])
        row, = (row for row in self.rows("connections") if row["peer"] == peer)
        self.assertEqual((row["calls"], row["state"]), (1, "ended"))
        disk.close()
        end = time.monotonic() + peers.LIMIT
        while self.rows("connections"):
            self.assertLess(time.monotonic(), end)
        for each in (caller, other):
            each.close()


class BlockSessions(Admin, daemon.DaemonTest):
    def test_a_block_session_is_ended_by_its_name(self):
        self.run_daemon("block", "--shards", "2", "--metrics", "off", "--listen", "iwarp://127.0.0.1:0", "--device", "disk=8M",
                        "--control", self.folder + "/control", exactly=True)
        path = self.folder + "/control"
        def rows(*words, status=0):
            return json.loads(self.admin("--json", *words, path=path, status=status))["rows"]
        port = rows("status")[0]["serves"][0].rsplit(":", 1)[1]
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        url = f"rnbd+iwarp://127.0.0.1:{port}/disk"
        with subprocess.Popen([client, "-q", "block", "write", "--session", "one", url], stdin=subprocess.PIPE,
                              stderr=subprocess.PIPE) as writer:
            end = time.monotonic() + daemon.START_LIMIT
            while not [row for row in rows("sessions") if row["state"] == "connected"]: # until it is there
                self.assertLess(time.monotonic(), end)
                self.assertIsNone(writer.poll())
            ended, _ = rows("evict", "one", "600")
            self.assertEqual((ended["kind"], ended["name"], ended["address"], ended["kept_out_seconds"], ended["remains"]),
                             ("block session", "one", "127.0.0.1", 600, None))
            self.assertEqual(rows("sessions"), [])
            refused = subprocess.run([client, "-q", "block", "read", "--session", "two", url], capture_output=True, check=False,
                                     timeout=120 * daemon.SLOW)
            self.assertNotEqual(refused.returncode, 0)
            self.assertEqual([(row["name"], row["address"]) for row in rows("evict")], [("one", "127.0.0.1")])
            rows("evict", "127.0.0.1", "300") # the same by another word
            self.assertEqual([(row["name"], row["address"]) for row in rows("evict")], [(None, "127.0.0.1")])
            rows("evict", "one", "0")
            self.assertEqual(rows("evict"), [])
            subprocess.run([client, "-q", "block", "read", "--session", "two", url], capture_output=True, check=True,
                           timeout=120 * daemon.SLOW)
            writer.kill()


if __name__ == "__main__":
    daemon.main()
