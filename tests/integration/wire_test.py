#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What goes over iWARP, read by Wireshark: every layer, procedure and chunk form, and nothing that it finds odd."""
import os
import random
import struct
import threading

import daemon
import peers
import pnfs_client
import pnfs_test
import wireshark
from peers import IwarpPeer, MOUNT, NFS, call_message, opaque
from pnfs_test import BLOCK

MSG, NOMSG = range(2)
PROCEDURES = {(NFS, procedure) for procedure in range(22)} | {(MOUNT, procedure) for procedure in range(6)}
# RFC 8797: this end takes a Send with Invalidate; 4096 octets inline both ways.
PRIVATE_MESSAGE = struct.pack(">I4B", 0xf6ab0e18, 1, 1, 3, 3)
MODE = struct.pack(">2I", 1, 0o755) + bytes(4 * 5) # sattr3


class Work:
    """Every procedure and chunk form, by a peer of which each octet is made by hand."""

    def __init__(self, test, peer):
        self.test, self.peer = test, peer
        self.root = peer.mount()

    def good(self, procedure, *arguments, **more):
        reply = self.peer.call(procedure, b"".join(arguments), **more)
        self.test.assertEqual(reply.nfs_status(), 0, procedure)
        return reply.results

    def procedures(self):
        peer, root, name = self.peer, opaque(self.root), lambda text: opaque(text.encode())
        for procedure, arguments in ((0, b""), (2, b""), (5, b""), (3, opaque(b"/export")), (4, b"")): # 1 is mount()
            self.test.assertEqual(peer.call(procedure, arguments, program=MOUNT).status, 0)
        self.test.assertEqual(peer.call(0).status, 0)
        file = opaque(peer.create(self.root, "file"))
        self.good(peers.WRITE, peers.write_arguments(peer.lookup(self.root, "file"), 0, b"inline, both ways"))
        self.good(peers.READ, file, struct.pack(">QI", 0, 100))
        self.good(peers.COMMIT, file, struct.pack(">QI", 0, 0))
        self.good(peers.GETATTR, file)
        self.good(2, file, MODE, bytes(4)) # SETATTR
        self.good(4, file, struct.pack(">I", 63)) # ACCESS
        self.good(peers.MKDIR, root, name("folder"), MODE)
        self.good(10, root, name("link"), bytes(4 * 6), name("file")) # SYMLINK
        self.good(5, opaque(peer.lookup(self.root, "link"))) # READLINK
        self.good(11, root, name("pipe"), struct.pack(">I", 7), MODE) # MKNOD
        self.good(15, file, root, name("second")) # LINK
        self.good(peers.RENAME, root, name("second"), root, name("third"))
        self.good(16, root, bytes(16), struct.pack(">I", 512)) # READDIR
        self.good(17, root, bytes(16), struct.pack(">2I", 512, 900)) # READDIRPLUS
        for procedure in (18, 19, 20): # FSSTAT, FSINFO, PATHCONF
            self.good(procedure, root)
        self.good(12, root, name("third")) # REMOVE
        self.good(13, root, name("folder")) # RMDIR

    def ask(self, arguments, procedure, inline=True, **lists):
        """A call with chunks; (proc, Write list, Reply chunk, the message behind them)."""
        peer, xid = self.peer, next(self.peer.xids)
        rpc = call_message(xid, procedure, arguments)
        reads = [(len(rpc) if position is None else position, peer.grant(data or rpc), len(data or rpc))
                 for position, data in lists.pop("pieces", ())]
        peer.send(peer.message(xid, rpc if inline else b"", reads=reads, proc=MSG if inline else NOMSG, **lists))
        return peer.answer_with_lists(xid)

    def space(self, *lengths):
        return [(self.peer.grant(bytes(length)), length) for length in lengths]

    def chunk_forms(self):
        peer = self.peer
        handle = peer.create(self.root, "chunks")
        data = random.Random(8).randbytes(6001)
        head = opaque(handle) + struct.pack(">Q3I", 0, len(data), 0, len(data)) # a WRITE up to its data
        read = peers.read_arguments(handle, 0, len(data))
        asserting = self.test.assertEqual

        def written(answer):
            asserting((answer[0], peers.Accepted(answer[3]).nfs_status()), (MSG, 0))
        written(self.ask(head, peers.WRITE, pieces=[(None, data)]))
        written(self.ask(head, peers.WRITE, pieces=[(None, data[:4000]), (None, data[4000:])]))
        pad = bytes(-len(data) % 4)
        written(self.ask(head + data + pad, peers.WRITE, inline=False, pieces=[(0, None)]))

        for room in (self.space(len(data)), self.space(4000, 4000)):
            proc, writes, _, body = self.ask(read, peers.READ, writes=[room])
            asserting((proc, peers.Accepted(body).nfs_status(), sum(s[1] for s in writes[0])), (MSG, 0, len(data)))
            asserting(b"".join(bytes(peer.memory[key]) for key, _ in room)[:len(data)], data)
        for room in (self.space(7000), self.space(5000, 2000)):
            proc, _, reply, body = self.ask(read, peers.READ, reply=room)
            whole = b"".join(bytes(peer.memory[key]) for key, _ in room)[:sum(s[1] for s in reply)]
            asserting((proc, body, peers.read_data(peers.Accepted(whole).results)), (NOMSG, b"", data))
        # A long call with a long reply, and a call that offers more than its reply takes.
        proc, _, _, _ = self.ask(read, peers.READ, inline=False, pieces=[(0, None)], reply=self.space(7000))
        asserting(proc, NOMSG)
        proc, _, _, body = self.ask(read, peers.READ, writes=[self.space(len(data))], reply=self.space(500))
        asserting((proc, peers.Accepted(body).nfs_status()), (MSG, 0))


class Wire(daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start("--shards", "1", export=":/export,root_squash=no",
                                 before_start=wireshark.without_capabilities)
        self.port = self.daemon.port("iwarp")
        self.capture = wireshark.Capture(self.folder, self.port)
        self.addCleanup(self.capture.kill)

    def peer(self, flags=0):
        peer = IwarpPeer(self.port, peers.mpa_request(flags=peers.FLAG_ENHANCED | flags, private_data=PRIVATE_MESSAGE))
        self.addCleanup(peer.close)
        return peer

    def run_client(self):
        """Our own client's work in version 3: small and large files both ways, listings, all that it can ask."""
        source, back = os.path.join(self.folder, "source"), os.path.join(self.folder, "back")
        os.mkdir(source)
        os.symlink("somewhere", os.path.join(source, "link"))
        for size in (0, 1, 1500, 300_001, 400_003, 700_002):
            with open(os.path.join(source, f"{size} octets"), "wb") as file:
                file.write(random.Random(size).randbytes(size))
        os.mkdir(os.path.join(self.data, "many"))
        for number in range(100):
            os.mkdir(os.path.join(self.data, "many", f"a name that is longer than most {number}"))
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        url = f"nfs+iwarp://127.0.0.1:{self.port}/export"
        for words in (["ping", "-c", "2", url], ["cp", "-r", "-p", source, url + "/tree"],
                      ["cp", "-r", url + "/tree", back], ["ls", "-l", url + "/many"],
                      ["stat", url + "/tree"], ["mv", url + "/tree", url + "/moved"], ["mkdir", url + "/new"], ["df", url],
                      ["mounts", url], ["rm", "-r", url + "/moved", url + "/new"]):
            self.run_tool(client, "-q", *(word + "?vers=3" if word.startswith("nfs+") else word for word in words))
        self.run_tool("diff", "-r", "--no-dereference", source, back)

    def dissected(self):
        """The packets, of which Wireshark has no complaint and has understood all that the daemon counted; and what was
        asked for."""
        packets = wireshark.packets(self.capture.stop())
        self.assertEqual([text for packet in packets for text in wireshark.complaints(packet)], [])
        self.assertEqual(sum(map(wireshark.undecoded, packets)), 0)
        named = {layer.name for packet in packets for layer in packet}
        self.assertLessEqual({"iwarp_mpa", "iwarp_ddp_rdmap", "rpcordma", "rpc", "nfs", "mount"}, named)
        counted = sum(float(line.split()[-1]) for line in self.daemon.scrape().splitlines()
                      if line.startswith("verbena_rpc_calls_total{") and 'transport="iwarp"' in line)
        asked = wireshark.calls(packets, 0)
        self.assertEqual(asked, wireshark.calls(packets, 1))
        self.assertEqual(sum(map(len, asked.values())), counted)
        for opcode, direction in ((peers.OP_READ_RESPONSE, "read"), (peers.OP_WRITE, "write")):
            series = f'verbena_rpcrdma_chunk_bytes_total{{direction="{direction}"}}'
            self.assertEqual(wireshark.placed(packets, opcode), self.daemon.metric(series), direction)
        return packets, set(asked)

    def to_server(self, packet):
        return next(layer for layer in packet if layer.name == "tcp").number("tcp.dstport") == self.port

    def forms(self, packets):
        """(by the requester?, form) of every message, and how many Sends invalidated a key."""
        found, invalidated = set(), 0
        for packet in packets:
            from_client = self.to_server(packet)
            for layer in packet:
                if layer.name == "rpcordma":
                    found.add((from_client, wireshark.form(layer, from_client)))
                elif layer.name == "iwarp_ddp_rdmap" and layer.number("iwarp_rdma.opcode") == peers.OP_SEND_INVALIDATE:
                    self.assertFalse(from_client)
                    invalidated += 1
        self.assertEqual(invalidated, self.daemon.metric("verbena_rpcrdma_remote_invalidations_total"))
        return found, invalidated

    def test_our_client(self):
        self.run_client()
        packets, asked = self.dissected()
        found, invalidated = self.forms(packets)
        self.assertLessEqual({(True, "RDMA_MSG"), (True, "RDMA_MSG + Read chunk"), (True, "RDMA_MSG + Write chunk"),
                              (True, "RDMA_MSG + Reply chunk"), (False, "RDMA_MSG"),
                              (False, "RDMA_MSG + filled Write chunk"), (False, "RDMA_NOMSG + filled Reply chunk")},
                             found)
        self.assertGreater(invalidated, 0)
        # The others are the raw peer's: ACCESS, MKNOD, LINK and PATHCONF, UMNT and UMNTALL.
        self.assertLessEqual(PROCEDURES - asked, {(NFS, 4), (NFS, 11), (NFS, 15), (NFS, 20), (MOUNT, 3), (MOUNT, 4)})

    def every_form(self, flags):
        peer = self.peer(flags)
        work = Work(self, peer)
        work.procedures()
        work.chunk_forms()
        peer.close()
        packets, asked = self.dissected()
        self.assertEqual(asked, PROCEDURES)
        found, invalidated = self.forms(packets)
        self.assertEqual(found, {
            (True, "RDMA_MSG"), (True, "RDMA_MSG + Read chunk"), (True, "RDMA_MSG + Write chunk"),
            (True, "RDMA_MSG + Reply chunk"), (True, "RDMA_MSG + Write chunk + Reply chunk"),
            (True, "RDMA_NOMSG + Position-Zero Read chunk"),
            (True, "RDMA_NOMSG + Position-Zero Read chunk + Reply chunk"),
            (False, "RDMA_MSG"), (False, "RDMA_MSG + filled Write chunk"), (False, "RDMA_NOMSG + filled Reply chunk")})
        self.assertGreater(invalidated, 0)
        return packets

    def test_every_procedure_and_chunk_form(self):
        self.every_form(0)

    def test_every_procedure_and_chunk_form_with_crc(self):
        packets = self.every_form(peers.FLAG_CRC)
        frames = [layer for packet in packets for layer in packet if layer.name == "iwarp_mpa"]
        checked = [text for frame in frames for text in frame.titles("iwarp_mpa.crc_check")]
        self.assertEqual(len(checked), sum(len(frame.all("iwarp_mpa.fpdu")) for frame in frames))
        self.assertEqual([text for text in checked if "(Good CRC32)" not in text], [])

    def test_errors(self):
        peer = self.peer()
        work = Work(self, peer)
        file = peer.create(work.root, "file")
        self.assertEqual(peer.write(file, 0, bytes(9001)).nfs_status(), 0)
        proc, _, _, body = work.ask(peers.read_arguments(file, 0, 9001), peers.READ) # a reply that nothing has room for
        self.assertEqual((proc, body), (4, struct.pack(">I", 2)))
        peer.raw(peers.tagged(peers.OP_WRITE, 0xbad, 0, b"anything"))
        with self.assertRaises(peers.Terminated) as ended:
            peer.receive_send()
        peer.close()
        packets = wireshark.packets(self.capture.stop())
        self.assertEqual([text for packet in packets for text in wireshark.complaints(packet)], [])
        layers = [layer for packet in packets for layer in packet]
        self.assertEqual([code for layer in layers for code in layer.all("rpcordma.errcode")], ["2"]) # ERR_CHUNK
        code, = [tuple(layer.number(f"iwarp_rdma.term_{part}") for part in ("layer", "etype_ddp", "errcode_ddp_tagged"))
                 for layer in layers if layer.all("iwarp_rdma.terminate")]
        self.assertEqual(code, ended.exception.code)


class Layouts(pnfs_test.WithLayouts):
    """Wireshark knows no RDMA layouts. It does know what carries them."""

    def test_operations_of_layouts(self):
        capture = wireshark.Capture(self.folder, self.daemon.port("tcp"))
        self.addCleanup(capture.kill)
        client = self.new_client(b"captured")
        handle, stateid, layout, _ = self.with_content(b"file", client)
        client.commit(handle, layout.stateid, 0, length=BLOCK)
        other = self.new_client(b"two")
        cut = threading.Thread(target=lambda: self.until_granted(lambda: other.set_size(handle, BLOCK)))
        cut.start()
        recall = client.recalled()
        self.assertIsNone(client.give_back(handle, recall.stateid))
        cut.join(peers.LIMIT)
        shown, called = {0: set(), 1: set()}, {0: set(), 1: set()}
        for packet in wireshark.packets_of_rpc(capture.stop()):
            kind = 0
            for layer in packet:
                self.assertEqual((layer.name == "_ws.malformed", [] if layer.name == "tcp" else layer.odd), (False, []))
                if layer.name == "rpc":
                    kind = layer.number("rpc.msgtyp")
                shown[kind] |= set(layer.numbers("nfs.opcode"))
                called[kind] |= set(layer.numbers("nfs.cb.operation"))
        operations = {pnfs_client.LAYOUTGET, pnfs_client.GETDEVICEINFO, pnfs_client.LAYOUTCOMMIT, pnfs_client.LAYOUTRETURN}
        for kind, found in shown.items():
            self.assertLessEqual(operations, found, kind)
            self.assertLessEqual({pnfs_client.CB_SEQUENCE, pnfs_client.CB_LAYOUTRECALL}, called[kind], kind)


class HowTo(daemon.DaemonTest):
    def test_the_script_shows_a_write_and_a_read(self):
        build = os.path.dirname(os.path.dirname(os.path.abspath(daemon.BINARY)))
        shown = self.run_tool(os.path.join(daemon.SOURCES, "docs/howto/wireshark.sh"), build).decode()
        for text in ("V3 WRITE Call", "V3 WRITE Reply", "V3 READ Call", "V3 READ Reply", "Position in XDR",
                     "Write chunk (1 segment)"):
            self.assertIn(text, shown)


if __name__ == "__main__":
    wireshark.may_capture()
    daemon.main()
