#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layouts of verbenad, by a client that shares no code with it: files read and written by RDMA, and what is asked back."""
import os
import random
import struct
import threading
import time

import daemon
import peers
import pnfs_client
from peers import IwarpPeer, Terminated
from pnfs_client import Client, DataConnection, Refused, endpoint

KIB = 1024
BLOCK = 64 * KIB # of memfs
LEASE = 5


def bracketed(host):
    return f"[{host}]" if ":" in host else host


class WithLayouts(daemon.DaemonTest):
    EXPORTS = (":/export,backend=memfs,pnfs", ":/other,backend=memfs")
    BLOCK = BLOCK
    HOST, IWARP = "127.0.0.1", "iwarp://127.0.0.1:0"

    def setUp(self):
        super().setUp()
        self.daemon = self.run_daemon(
            "nfs", *(word for e in self.exports() for word in ("--export", e)), "--state", os.path.join(self.folder, "state"), "--listen", f"tcp://{bracketed(self.HOST)}:0",
            "--listen", self.IWARP, "--metrics", "off", "--rpcbind", "no", "--shards", "2", "--lease", str(LEASE))
        self.client = self.new_client(b"one")
        self.root = self.client.look_up(b"export")

    def exports(self):
        return self.EXPORTS

    def new_client(self, name, **more):
        made = Client(self.daemon.port("tcp"), name, host=self.HOST, **more)
        self.addCleanup(made.close)
        return made.connect()

    def reach(self, layout, client=None, **more):
        """A connection to the data server of a layout."""
        client = client or self.client
        device = next(e.device for e in layout.extents if e.state != pnfs_client.NONE_DATA)
        made = DataConnection(endpoint(*client.device(device)), client, device, **more)
        self.addCleanup(made.close)
        return made

    def refused(self, status, f, *arguments):
        with self.assertRaises(Refused) as found:
            f(*arguments)
        self.assertEqual(found.exception.status, status)

    def until_granted(self, f, meanwhile=lambda: None):
        """Calls `f` until the server does not ask to come again."""
        limit = time.monotonic() + peers.LIMIT
        while True:
            try:
                return f()
            except Refused as e:
                if e.status != pnfs_client.DELAY:
                    raise
            self.assertLess(time.monotonic(), limit)
            meanwhile()
            time.sleep(0.05)


    def goes_round(self):
        """A file is written by RDMA and read by NFS; where that was."""
        handle, stateid = self.client.open(self.root, b"file")
        layout = self.client.layout(handle, stateid, pnfs_client.RW_LAYOUT, length=BLOCK)
        where = self.client.device(layout.extents[0].device)
        self.reach(layout).put(layout, 0, b"content")
        written = [(0, BLOCK)] if layout.at(0).state == pnfs_client.INVALID_DATA else []
        self.client.commit(handle, layout.stateid, 6, length=BLOCK, ranges=written)
        self.assertEqual(self.client.read(handle, stateid, 0, 100), b"content")
        return where

    def with_content(self, name, client=None, blocks=4):
        """A file, a layout of it to write, and a connection."""
        client = client or self.client
        handle, stateid = client.open(self.root, name)
        client.write(handle, stateid, 0, b"a" * BLOCK * blocks)
        layout = client.layout(handle, stateid, pnfs_client.RW_LAYOUT, length=blocks * BLOCK)
        return handle, stateid, layout, self.reach(layout, client)


class Layouts(WithLayouts):
    def test_a_file_is_written_and_read_by_rdma(self):
        client, other = self.client, self.new_client(b"two")
        self.assertTrue(client.flags & pnfs_client.USE_PNFS_MDS)
        self.assertEqual(client.attribute(self.root, pnfs_client.FS_LAYOUT_TYPES),
                         struct.pack(">2I", 1, pnfs_client.LAYOUT4_RDMA))
        self.assertEqual(client.attribute(self.root, pnfs_client.LAYOUT_BLKSIZE), struct.pack(">I", BLOCK))
        handle, stateid = client.open(self.root, b"file")
        content = random.Random(3).randbytes(5 * BLOCK + 12345)
        layout = client.layout(handle, stateid, pnfs_client.RW_LAYOUT, length=len(content), least=len(content))
        self.rules(layout, pnfs_client.RW_LAYOUT, 0, len(content))
        netid, address = client.device(layout.extents[0].device)
        self.assertEqual((netid, endpoint(netid, address)), ("rdma", ("127.0.0.1", self.daemon.port("iwarp"))))
        # With CRCs and without; the server has two shards, which take connections in turn.
        connections = [self.reach(layout, crc=crc) for crc in (False, True, True, False)]
        size = -(-len(content) // len(connections))
        for i, data in enumerate(connections):
            data.put(layout, i * size, content[i * size:(i + 1) * size])
        # What is not committed is no part of the file.
        self.assertEqual(client.size(handle), 0)
        written = [(0, -(-len(content) // BLOCK) * BLOCK)] if layout.at(0).state == pnfs_client.INVALID_DATA else []
        self.assertEqual(client.commit(handle, layout.stateid, len(content) - 1, length=written[0][1] if written else len(content),
                                       ranges=written), len(content))
        self.assertEqual(client.size(handle), len(content))
        self.assertEqual(connections[0].get(layout, 0, len(content)), content)
        seen, other_state = other.open(self.root, b"file", access=1, create=False)
        self.assertEqual(b"".join(other.read(seen, other_state, at, BLOCK) for at in range(0, len(content), BLOCK)), content)
        # All clients reach the same memory, by keys of their own.
        shared = other.layout(seen, other_state, pnfs_client.READ_LAYOUT, length=len(content))
        self.rules(shared, pnfs_client.READ_LAYOUT, 0, len(content))
        self.assertEqual(self.reach(shared, other).get(shared, 0, len(content)), content)
        self.assertNotEqual({e.handle for e in shared.extents}, {e.handle for e in layout.extents})
        with self.assertRaises(Terminated):
            self.reach(shared, other).read(layout.extents[0].handle, layout.extents[0].storage, 1)
        self.assertIsNone(client.give_back(handle, layout.stateid))
        with self.assertRaises(Terminated):
            connections[1].read(layout.extents[0].handle, layout.extents[0].storage, 1)

    def rules(self, layout, iomode, offset, least):
        """2.4.1 of the draft, as far as all layouts of verbenad keep it: one extent behind the other, none of length 0."""
        states = {pnfs_client.READ_LAYOUT: {pnfs_client.READ_DATA, pnfs_client.NONE_DATA},
                  pnfs_client.RW_LAYOUT: {pnfs_client.READ_WRITE_DATA, pnfs_client.INVALID_DATA}}[iomode]
        self.assertLessEqual({e.state for e in layout.extents}, states)
        self.assertLessEqual(layout.extents[0].offset, offset)
        for before, behind in zip(layout.extents, layout.extents[1:]):
            self.assertEqual(before.offset + before.length, behind.offset)
        self.assertNotIn(0, [e.length for e in layout.extents])
        self.assertGreaterEqual(layout.extents[-1].offset + layout.extents[-1].length, offset + least)
        self.assertEqual({mode for _, _, mode in layout.ranges}, {iomode})

    def test_a_file_that_was_written_by_nfs_is_read_by_rdma_with_its_holes(self):
        client = self.client
        handle, stateid = client.open(self.root, b"file")
        head, tail = (random.Random(seed).randbytes(BLOCK) for seed in (4, 5))
        client.write(handle, stateid, 0, head)
        client.write(handle, stateid, 3 * BLOCK, tail)
        layout = client.layout(handle, stateid, pnfs_client.READ_LAYOUT)
        self.rules(layout, pnfs_client.READ_LAYOUT, 0, 4 * BLOCK)
        self.assertEqual(layout.at(2 * BLOCK).state, pnfs_client.NONE_DATA)
        self.assertEqual(self.reach(layout).get(layout, 0, 4 * BLOCK), head + bytes(2 * BLOCK) + tail)
        # Its keys are to read alone.
        data = self.reach(layout)
        data.write(layout.at(0).handle, layout.at(0).storage, b"no")
        with self.assertRaises(Terminated):
            data.read(layout.at(0).handle, layout.at(0).storage, 1)
        self.assertEqual(client.read(handle, stateid, 0, BLOCK), head)
        # Nor does a key reach beyond its bytes.
        last = layout.at(0)
        with self.assertRaises(Terminated):
            self.reach(layout).read(last.handle, last.storage + 64 * BLOCK, 1)

    def test_a_layout_is_asked_back_before_the_file_is_cut(self):
        handle, stateid, layout, data = self.with_content(b"file")
        other = self.new_client(b"two")
        cut = threading.Thread(target=lambda: self.until_granted(lambda: other.set_size(handle, BLOCK)))
        cut.start()
        recall = self.client.recalled()
        self.assertEqual((recall.type, recall.file), (pnfs_client.LAYOUT4_RDMA, handle))
        self.assertEqual(recall.stateid[4:], layout.stateid[4:])
        self.assertGreater(recall.stateid[:4], layout.stateid[:4])
        # Until it is given back it may be used, and the file is not cut.
        data.put(layout, 2 * BLOCK, b"b" * 100)
        self.assertEqual(self.client.size(handle), 4 * BLOCK)
        self.client.commit(handle, recall.stateid, 2 * BLOCK + 99, length=4 * BLOCK)
        self.refused(pnfs_client.RECALLCONFLICT, self.client.layout, handle, recall.stateid, pnfs_client.RW_LAYOUT)
        self.assertIsNone(self.client.give_back(handle, recall.stateid, recall.offset, recall.length))
        cut.join(peers.LIMIT)
        self.assertEqual(self.client.size(handle), BLOCK)
        with self.assertRaises(Terminated):
            data.put(layout, 0, b"late")
        self.assertEqual(self.client.read(handle, stateid, 0, BLOCK), b"a" * BLOCK)
        # The file has rest from layouts now. The client goes on by NFS, and with other files on a new connection.
        self.refused(pnfs_client.LAYOUTTRYLATER, self.client.layout, handle, stateid, pnfs_client.RW_LAYOUT)
        self.client.write(handle, stateid, 0, b"again")
        _, _, another, again = self.with_content(b"another")
        again.put(another, 0, b"another")
        self.assertEqual(again.get(another, 0, 8), b"anothera")

    def test_who_does_not_give_it_back_loses_it(self):
        handle, stateid, layout, data = self.with_content(b"file")
        kept_handle, _, kept, _ = self.with_content(b"kept")
        other = self.new_client(b"two")
        began = time.monotonic()
        # Its lease goes on: it is not taken for dead.
        self.until_granted(lambda: other.set_size(handle, BLOCK), meanwhile=lambda: self.client.size(kept_handle))
        self.assertGreater(time.monotonic() - began, LEASE - 1)
        data.write(layout.at(0).handle, layout.at(0).storage, b"stale")
        with self.assertRaises(Terminated):
            data.read(layout.at(0).handle, layout.at(0).storage, 1)
        self.assertEqual(other.size(handle), BLOCK)
        self.assertEqual(self.client.read(handle, stateid, 0, 5), b"aaaaa")
        # What it has of another file goes on, on a new connection.
        again = self.reach(kept)
        again.put(kept, 0, b"kept")
        self.assertEqual(again.get(kept, 0, 5), b"kepta")

    def test_only_who_shows_its_device_id_is_let_in(self):
        handle, stateid, layout, data = self.with_content(b"file")
        device = layout.extents[0].device
        where = endpoint(*self.client.device(device))
        other = self.new_client(b"two")
        for client, shown, version, reason in ((self.client, bytes(16), 1, 2),
                                               (self.client, device[:-1] + bytes([device[-1] ^ 1]), 1, 2),
                                               (other, device, 1, 2), (self.client, device, 2, 1)):
            with self.assertRaises(pnfs_client.Rejected) as rejected:
                DataConnection(where, client, shown, version=version)
            self.assertEqual(rejected.exception.reason, reason)
        self.daemon.log_with(r"peers: turned away peer=127\.0\.0\.1 layout=")
        # Calls by RPC-over-RDMA come to the same port, with private data of their own or with none.
        for private in (b"", struct.pack(">I4B", 0xf6ab0e18, 1, 1, 3, 3)):
            peer = IwarpPeer(where[1], peers.mpa_request(private_data=private))
            self.addCleanup(peer.close)
            self.assertEqual(peer.call(0).status, 0)
        self.assertEqual(data.get(layout, 0, 10), b"a" * 10)
        self.assertEqual(self.client.read(handle, stateid, 0, 1), b"a")

    def test_nothing_is_placed_once_a_file_is_cut(self):
        """A client writes without a pause while its layout is taken; what others write behind that stays as they wrote it."""
        draw = random.Random(6)
        other = self.new_client(b"two")
        whole = 4 * BLOCK
        for i in range(4):
            handle, _, layout, data = self.with_content(b"file %d" % i)
            ended = []

            def write(data=data, layout=layout, ended=ended):
                try:
                    while True:
                        for extent in layout.extents:
                            data.write(extent.handle, extent.storage, b"w" * min(extent.length, whole))
                except (ConnectionError, Terminated) as e:
                    ended.append(e)

            def cut(handle=handle):
                self.until_granted(lambda: other.set_size(handle, 0))
                for at in range(0, whole, BLOCK):
                    other.write(handle, pnfs_client.ANONYMOUS, at, b"n" * BLOCK)

            threads = [threading.Thread(target=write), threading.Thread(target=cut)]
            for thread in threads:
                thread.start()
            recall = self.client.recalled()
            time.sleep(draw.random() / 20)
            self.client.give_back(handle, recall.stateid)
            for thread in threads:
                thread.join(peers.LIMIT)
                self.assertFalse(thread.is_alive())
            self.assertEqual(len(ended), 1)
            for at in range(0, whole, BLOCK):
                self.assertEqual(other.read(handle, pnfs_client.ANONYMOUS, at, BLOCK), b"n" * BLOCK)

    def test_a_client_has_so_many_connections(self):
        _, _, layout, first = self.with_content(b"file")
        connections = [first] + [self.reach(layout) for _ in range(15)]
        with self.assertRaises(pnfs_client.Rejected) as rejected:
            self.reach(layout)
        self.assertEqual(rejected.exception.reason, 3)
        other = self.new_client(b"two")
        _, _, others, data = self.with_content(b"another", other)
        self.assertEqual(data.get(others, 0, 3), b"aaa")
        # One that ends makes room.
        connections.pop().close()
        limit = time.monotonic() + peers.LIMIT
        while True:
            try:
                self.assertEqual(self.reach(layout).get(layout, 0, 3), b"aaa")
                break
            except pnfs_client.Rejected:
                self.assertLess(time.monotonic(), limit)
                time.sleep(0.02)
        for connection in connections:
            self.assertEqual(connection.get(layout, 0, 3), b"aaa")

    def test_what_no_client_does_ends_its_connection_alone(self):
        _, _, layout, kept = self.with_content(b"file")
        extent = layout.at(0)
        read = struct.pack(">IQIIQ", 0x5101, 0, 8, extent.handle, extent.storage)
        for odd in (peers.untagged(peers.OP_SEND, b"a message"),
                    peers.untagged(peers.OP_SEND_INVALIDATE, b"a message", key=extent.handle),
                    peers.untagged(peers.OP_READ_REQUEST, read[:-1], queue=1),
                    peers.untagged(peers.OP_READ_REQUEST, read, queue=1, sequence=2),
                    peers.tagged(peers.OP_READ_RESPONSE, extent.handle, extent.storage, b"nobody asked"),
                    peers.tagged(peers.OP_WRITE, extent.handle, 2**64 - 4, b"round the end"),
                    peers.tagged(peers.OP_WRITE, extent.handle ^ 1, extent.storage, b"another key")):
            data = self.reach(layout)
            data.socket.sendall(peers.fpdu(odd))
            peers.until_closed(data.socket)
            data.close()
        self.assertEqual(kept.get(layout, 0, 4 * BLOCK), b"a" * 4 * BLOCK)

    def test_a_stop_ends_connections(self):
        _, _, layout, data = self.with_content(b"file")
        self.assertEqual(data.get(layout, 0, 1), b"a")
        began = time.monotonic()
        self.assertEqual(self.daemon.stop(), 0)
        self.assertLess(time.monotonic() - began, daemon.STOP_LIMIT / 2)
        with self.assertRaises((ConnectionError, Terminated)):
            data.read(layout.at(0).handle, layout.at(0).storage, 1)


class OverIpv6(WithLayouts):
    HOST, IWARP = "::1", "iwarp://[::1]:0"

    def test_the_data_server_has_an_address_of_that_family(self):
        netid, address = self.goes_round()
        self.assertEqual((netid, endpoint(netid, address)), ("rdma6", ("::1", self.daemon.port("iwarp"))))


class AtEveryAddress(WithLayouts):
    IWARP = "iwarp://0.0.0.0:0"

    def test_a_client_is_told_the_address_by_which_it_is_reached(self):
        netid, address = self.goes_round()
        self.assertEqual((netid, endpoint(netid, address)), ("rdma", ("127.0.0.1", self.daemon.port("iwarp"))))


class Elsewhere(WithLayouts):
    """The only data server is of a family that the client does not come by."""
    IWARP = "iwarp://[::1]:0"

    def test_who_reaches_no_data_server_gets_no_layouts(self):
        handle, stateid = self.client.open(self.root, b"file")
        self.client.write(handle, stateid, 0, b"content")
        self.refused(pnfs_client.LAYOUTUNAVAILABLE, self.client.layout, handle, stateid, pnfs_client.READ_LAYOUT)


class Beside(WithLayouts):
    """An export without layouts beside one that has them."""

    def test_there_are_layouts_of_exports_that_say_so(self):
        client = self.client
        root = client.look_up(b"other")
        handle, stateid = client.open(root, b"file")
        client.write(handle, stateid, 0, b"content")
        self.refused(pnfs_client.LAYOUTUNAVAILABLE, client.layout, handle, stateid, pnfs_client.READ_LAYOUT)


class Without(WithLayouts):
    """A server that has no export with layouts."""
    EXPORTS = (":/export,backend=memfs",)

    def test_there_are_no_layouts(self):
        client = self.client
        handle, stateid = client.open(self.root, b"file")
        client.write(handle, stateid, 0, b"content")
        self.refused(pnfs_client.NOTSUPP, client.layout, handle, stateid, pnfs_client.READ_LAYOUT)
        # What layouts would say in a connect request is for nobody there.
        with self.assertRaises((pnfs_client.Rejected, ConnectionError, AssertionError)):
            DataConnection(("127.0.0.1", self.daemon.port("iwarp")), client, bytes(16))


class Settings(daemon.DaemonTest):
    def complaint(self, export, *more):
        words = ["nfs", "--export", export, "--state", os.path.join(self.folder, "state"), "--metrics", "off", "--rpcbind", "no"]
        done = self.run_binary(*words, *more)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def test_what_can_give_no_layouts_is_refused_with_the_cure(self):
        iwarp = ("--listen", "iwarp://127.0.0.1:0")
        for export, more, cure in (
                (":/export,backend=memfs,pnfs", ("--listen", "tcp://127.0.0.1:0"), "add --listen iwarp://HOST:20049"),
                (":/export,backend=memfs,pnfs,transport=tcp", iwarp, "add transport=iwarp"),
                (":/export,backend=memfs,pnfs", iwarp + ("--versions", "3"), "add one of them to versions")):
            self.assertIn(cure, self.complaint(export, *more))

    def test_the_start_and_the_configuration_tell_of_it(self):
        words = ["nfs", "--export", ":/export,backend=memfs,pnfs", "--listen", "iwarp://127.0.0.1:0", "--metrics", "off",
                 "--rpcbind", "no", "--state", os.path.join(self.folder, "state")]
        server = self.run_daemon(*words)
        self.assertTrue(any(",pnfs) to" in line for line in server.lines), server.lines)


class LayoutsOfFiles(WithLayouts):
    """Files on a disk: nothing of them is mapped."""

    def exports(self):
        os.chmod(self.data, 0o777)
        return (f"{self.data}:/export,backend=posixfs,pnfs,root_squash=no",)

    def path(self, name):
        return os.path.join(self.data, name)

    def content(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def test_a_file_is_written_and_read_by_rdma(self):
        client = self.client
        self.assertEqual(client.attribute(self.root, pnfs_client.FS_LAYOUT_TYPES),
                         struct.pack(">2I", 1, pnfs_client.LAYOUT4_RDMA))
        self.assertEqual(client.attribute(self.root, pnfs_client.LAYOUT_BLKSIZE), struct.pack(">I", 4096))
        handle, stateid = client.open(self.root, b"file")
        content = random.Random(6).randbytes(300 * KIB + 1234)
        layout = client.layout(handle, stateid, pnfs_client.RW_LAYOUT, length=len(content), least=len(content))
        self.assertEqual([e.state for e in layout.extents], [pnfs_client.READ_WRITE_DATA])
        connections = [self.reach(layout, crc=crc) for crc in (False, True, True, False)]
        size = -(-len(content) // len(connections))
        for i, data in enumerate(connections):
            data.put(layout, i * size, content[i * size:(i + 1) * size])
        client.commit(handle, layout.stateid, len(content) - 1, length=len(content))
        self.assertEqual(self.content("file"), content)
        self.assertEqual(client.size(handle), len(content))
        self.assertEqual(connections[2].get(layout, 0, len(content)), content)
        # Behind the end, and where somebody local has cut the file.
        self.assertEqual(connections[0].get(layout, len(content) - 2, 10), content[-2:] + bytes(8))
        os.truncate(self.path("file"), 1000)
        self.assertEqual(connections[1].get(layout, 998, 10000), content[998:1000] + bytes(9998))
        self.assertIsNone(client.give_back(handle, layout.stateid))
        with self.assertRaises(Terminated):
            connections[1].read(layout.extents[0].handle, layout.extents[0].storage, 1)

    def test_a_file_that_others_wrote_is_read_with_its_holes(self):
        with open(self.path("file"), "wb") as f:
            f.write(b"head")
            f.seek(200 * KIB)
            f.write(b"tail")
        handle, stateid = self.client.open(self.root, b"file", access=1, create=False)
        layout = self.client.layout(handle, stateid, pnfs_client.READ_LAYOUT)
        data = self.reach(layout)
        self.assertEqual(data.get(layout, 0, 200 * KIB + 4), self.content("file"))
        # Its key is to read alone.
        data.write(layout.extents[0].handle, layout.extents[0].storage, b"x")
        with self.assertRaises(Terminated):
            data.read(layout.extents[0].handle, layout.extents[0].storage, 1)
        self.assertEqual(self.content("file")[:4], b"head")


if __name__ == "__main__":
    daemon.main()
