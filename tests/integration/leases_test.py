#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Read delegations of files of this host: processes that write wait until clients have given them back."""
import os
import signal
import struct
import subprocess
import sys

import daemon
from bad_clients4_test import CREATE_SESSION, LOOKUP, OK, OPEN, PUTROOTFH, RECLAIM_COMPLETE, Client4, words
from peers import LIMIT, WRITE, Accepted, TcpPeer, opaque, write_arguments

DELEGRETURN, GETFH, PUTFH, WRITE4 = 8, 10, 22, 38
CB_RECALL, CB_SEQUENCE = 4, 11
DELAY, JUKEBOX = 10008, 10008
READ_ACCESS, WRITE_ACCESS, NO_DELEGATION = 1, 2, 0x400
NONE, READ = 0, 1 # open_delegation_type4
CONN_BACK_CHAN = 2
CLAIM_PREVIOUS = 1


class CalledPeer(TcpPeer):
    """Keeps what the server calls."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.calls, self.replies = [], []

    def take_one(self):
        message, last = b"", False
        while not last:
            (mark,) = struct.unpack(">I", self.take(4))
            last = mark >= 0x80000000
            message += self.take(mark & 0x7fffffff)
        (kind,) = struct.unpack(">I", message[4:8])
        (self.replies if kind else self.calls).append(message)

    def receive(self):
        while not self.replies:
            self.take_one()
        return Accepted(self.replies.pop(0))

    def next_call(self):
        while not self.calls:
            self.take_one()
        return self.calls.pop(0)


class Reader:
    """Takes one thing after another from bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def bytes(self, size):
        self.at += size
        assert self.at <= len(self.data)
        return self.data[self.at - size:self.at]

    def word(self):
        return struct.unpack(">I", self.bytes(4))[0]

    def opaque(self):
        size = self.word()
        return self.bytes(size + -size % 4)[:size]


class Holder(Client4):
    """A client that can be called."""
    export = b"export"

    def __init__(self, port, name):
        super().__init__(port, None, name)
        self.peer.close()
        self.peer = CalledPeer(port)

    def create_session(self, slots=8):
        channel = words(0, 1 << 20, 1 << 20, 4096, 8, slots, 0)
        status = self.compound(words(CREATE_SESSION) + struct.pack(">QII", self.id, self.next, CONN_BACK_CHAN) + channel
                               + words(0, 4096, 4096, 0, 2, 1, 0) + words(0x40000000, 1, 0))
        if status == OK:
            self.session, self.sequence = self.results[8:24], 0
            self.next += 1
        return status

    def open_file(self, name, access):
        """Status, delegation type; what it has then is in `handle`, `stateid` and `delegation`."""
        status = self.call(words(PUTROOTFH), words(LOOKUP) + opaque(self.export),
                           words(OPEN, 0, access, 0) + struct.pack(">Q", 0) + opaque(self.name) + words(0) + words(0) + opaque(name),
                           words(GETFH))
        if status != OK:
            return status, NONE
        results = Reader(self.results)
        results.bytes(44 + 8 + 8 + 8) # SEQUENCE, PUTROOTFH, LOOKUP, and OPEN's number and status
        self.stateid = results.bytes(16)
        results.bytes(4 + 8 + 8 + 4) # of the folder, and flags
        results.bytes(4 * results.word()) # attributes
        kind = results.word()
        if kind == READ:
            self.delegation = results.bytes(16)
            results.bytes(4 + 12) # recall, and an access control entry
            results.opaque()
        else:
            assert kind == NONE, kind
        results.bytes(8)
        self.handle = results.opaque()
        return status, kind

    def take_back(self, handle):
        """An open to read with its delegation, after a restart: whether that is recalled at once."""
        status = self.call(words(PUTFH) + opaque(handle),
                           words(OPEN, 0, READ_ACCESS, 0) + struct.pack(">Q", 0) + opaque(self.name) + words(0) + words(CLAIM_PREVIOUS, READ))
        assert status == OK, status
        results = Reader(self.results)
        results.bytes(44 + 8 + 8) # SEQUENCE, PUTFH, and OPEN's number and status
        self.stateid = results.bytes(16)
        results.bytes(4 + 8 + 8 + 4)
        results.bytes(4 * results.word())
        assert results.word() == READ
        self.handle, self.delegation = handle, results.bytes(16)
        return results.word() != 0

    def give_back(self, delegation):
        return self.call(words(PUTFH) + opaque(self.handle), words(DELEGRETURN) + delegation)

    def write(self, data):
        return self.call(words(PUTFH) + opaque(self.handle), words(WRITE4) + self.stateid + struct.pack(">QI", 0, 2) + opaque(data))

    def hear_recall(self):
        """The stateid that the server wants back. It is told that this was heard."""
        call = Reader(self.peer.next_call())
        xid = call.word()
        call.bytes(5 * 4)
        for _ in range(2): # credential and verifier
            call.word()
            call.opaque()
        call.opaque() # tag
        call.bytes(2 * 4)
        assert call.word() == 2
        assert call.word() == CB_SEQUENCE
        session, sequence, slot, highest = call.bytes(16), call.word(), call.word(), call.word()
        call.bytes(2 * 4)
        assert call.word() == CB_RECALL
        wanted = call.bytes(16)
        self.peer.send(words(xid, 1, 0, 0, 0, 0) + words(OK) + opaque(b"") + words(2) + words(CB_SEQUENCE, OK) + session
                       + words(sequence, slot, highest, highest) + words(CB_RECALL, OK))
        return wanted


class Leases(daemon.DaemonTest):
    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.data, "file")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write("text\n")
        os.chmod(self.file, 0o666)

    def serve(self, export=""):
        self.daemon = self.start(export=":/export,root_squash=no" + export)

    def holder(self, name=b"holder"):
        made = Holder(self.daemon.port("tcp"), name)
        self.addCleanup(lambda: made.peer.close())
        self.assertEqual(made.connect(), OK)
        return made

    def content(self):
        with open(self.file, encoding="utf-8") as file:
            return file.read()

    def delegations(self):
        return self.daemon.metric('verbena_nfs4_delegations{type="read"}')

    def test_a_local_process_writes_when_the_delegation_is_back(self):
        self.serve()
        client = self.holder()
        self.assertEqual(client.open_file(b"file", READ_ACCESS), (OK, READ))
        self.assertEqual(self.delegations(), 1)
        with subprocess.Popen(["sh", "-c", f"echo more >> {self.file}"]) as writer:
            self.assertEqual(client.hear_recall(), client.delegation)
            # He waits, and others read.
            self.assertIsNone(writer.poll())
            self.assertEqual(self.content(), "text\n")
            self.assertEqual(client.give_back(client.delegation), OK)
            self.assertEqual(writer.wait(LIMIT), 0)
        self.assertEqual(self.content(), "text\nmore\n")
        self.assertEqual(self.daemon.metric("verbena_nfs4_local_recalls_total"), 1)
        self.assertEqual(self.delegations(), 0)

    def test_files_of_all_shards_are_delegated_and_recalled(self):
        """Each file has its home on one of three shards, which a secret of this start chooses: twelve have two of them at least."""
        self.daemon = self.start("--shards", "3", export=":/export,root_squash=no")
        files = [f"file{i}" for i in range(12)]
        for name in files:
            with open(os.path.join(self.data, name), "w", encoding="utf-8") as file:
                file.write("text\n")
        client = self.holder()
        held = {}
        for name in files:
            self.assertEqual(client.open_file(name.encode(), READ_ACCESS), (OK, READ))
            held[client.delegation] = (name, client.handle, client.stateid)
        self.assertEqual(len(held), 12)
        self.assertEqual(self.delegations(), 12)
        self.assertEqual(self.daemon.metric("verbena_nfs4_opens"), 12)
        # The number of a stateid behind its epoch tells the home.
        self.assertGreater(len({struct.unpack("<I", stateid[8:12])[0] % 3 for stateid in held}), 1)
        writers = [subprocess.Popen(["sh", "-c", f"echo more >> {os.path.join(self.data, name)}"]) for name in files]
        for writer in writers:
            self.addCleanup(writer.wait)
            self.addCleanup(writer.kill)
        for _ in files:
            wanted = client.hear_recall()
            name, client.handle, _ = held.pop(wanted)
            self.assertIsNone(writers[files.index(name)].poll())
            self.assertEqual(client.give_back(wanted), OK)
            self.assertEqual(writers[files.index(name)].wait(LIMIT), 0)
        self.assertEqual(self.delegations(), 0)
        self.assertEqual(self.daemon.metric("verbena_nfs4_local_recalls_total"), 12)

    def test_one_that_cuts_the_file_waits_too(self):
        self.serve()
        client = self.holder()
        self.assertEqual(client.open_file(b"file", READ_ACCESS), (OK, READ))
        with subprocess.Popen([sys.executable, "-c", "import os, sys; os.truncate(sys.argv[1], 2)", self.file]) as cutter:
            self.assertEqual(client.hear_recall(), client.delegation)
            self.assertIsNone(cutter.poll())
            self.assertEqual(self.content(), "text\n")
            self.assertEqual(client.give_back(client.delegation), OK)
            self.assertEqual(cutter.wait(LIMIT), 0)
        self.assertEqual(self.content(), "te")

    def test_what_version_3_wrote_is_no_obstacle_and_what_it_writes_is_recalled_for(self):
        self.serve()
        old = TcpPeer(self.daemon.port("tcp"))
        self.addCleanup(old.close)
        root = old.mount()
        handle = old.create(root, "new")
        self.assertEqual(old.call(WRITE, write_arguments(handle, 0, b"first")).nfs_status(), OK)
        client = self.holder()
        self.assertEqual(client.open_file(b"new", READ_ACCESS), (OK, READ)) # verbenad has it open for writing itself
        self.assertEqual(old.call(WRITE, write_arguments(handle, 0, b"other")).nfs_status(), JUKEBOX)
        self.assertEqual(client.hear_recall(), client.delegation)
        self.assertEqual(client.give_back(client.delegation), OK)
        self.assertEqual(old.call(WRITE, write_arguments(handle, 0, b"other")).nfs_status(), OK)
        with open(os.path.join(self.data, "new"), "rb") as file:
            self.assertEqual(file.read(), b"other")
        self.assertEqual(self.daemon.metric("verbena_nfs4_local_recalls_total"), 0) # no lease was broken

    def test_its_holder_gives_it_back_to_write(self):
        self.serve()
        client = self.holder()
        self.assertEqual(client.open_file(b"file", READ_ACCESS), (OK, READ))
        delegation = client.delegation
        self.assertEqual(client.open_file(b"file", WRITE_ACCESS | NO_DELEGATION)[0], DELAY)
        self.assertEqual(client.hear_recall(), delegation)
        self.assertEqual(client.give_back(delegation), OK)
        self.assertEqual(client.call(words(PUTFH) + opaque(client.handle)), OK)
        # It says that it wants none, so it hears why there is none: this client does not read that.
        self.assertEqual(client.open_file(b"file", WRITE_ACCESS), (OK, NONE))
        self.assertEqual(client.write(b"TEXT"), OK)
        self.assertEqual(self.content(), "TEXT\n")

    def test_a_file_that_is_written_locally_has_none(self):
        self.serve()
        client = self.holder()
        with open(self.file, "a", encoding="utf-8"):
            self.assertEqual(client.open_file(b"file", READ_ACCESS), (OK, NONE))
        self.assertEqual(self.daemon.metric('verbena_nfs4_lease_refusals_total{reason="in_use"}'), 1)
        self.assertEqual(client.open_file(b"file", READ_ACCESS), (OK, READ))

    def test_an_export_can_do_without(self):
        self.serve(",leases=no")
        client = self.holder()
        self.assertEqual(client.open_file(b"file", READ_ACCESS), (OK, NONE))
        self.assertIn("leases=no", "\n".join(self.daemon.lines))

    def test_one_that_is_taken_back_after_a_restart_has_its_lease_again(self):
        self.serve()
        client = self.holder()
        self.assertEqual(client.open_file(b"file", READ_ACCESS), (OK, READ))
        self.daemon.stop(signal.SIGKILL)
        with open(self.file, "a", encoding="utf-8") as file:
            file.write("unseen\n")
        self.serve()
        again = Holder(self.daemon.port("tcp"), client.name)
        self.addCleanup(again.peer.close)
        self.assertEqual((again.exchange(), again.create_session()), (OK, OK))
        # It may have been written meanwhile, and was.
        self.assertTrue(again.take_back(client.handle))
        self.assertEqual(again.call(words(RECLAIM_COMPLETE, 0)), OK)
        with subprocess.Popen(["sh", "-c", f"echo more >> {self.file}"]) as writer:
            self.assertEqual(again.hear_recall(), again.delegation)
            self.assertIsNone(writer.poll())
            self.assertEqual(self.content(), "text\nunseen\n")
            self.assertEqual(again.give_back(again.delegation), OK)
            self.assertEqual(writer.wait(LIMIT), 0)
        self.assertEqual(self.content(), "text\nunseen\nmore\n")

    def test_they_end_with_verbenad(self):
        self.serve()
        client = self.holder()
        self.assertEqual(client.open_file(b"file", READ_ACCESS), (OK, READ))
        self.assertEqual(self.daemon.stop(), 0)
        with open(self.file, "a", encoding="utf-8") as file:
            file.write("more\n")
        self.assertEqual(self.content(), "text\nmore\n")


if __name__ == "__main__":
    daemon.main()
