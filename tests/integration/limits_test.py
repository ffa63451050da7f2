#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peers that are stuck, and how long the server waits for them: while it serves, and when it is asked to stop."""
import contextlib
import os
import random
import socket
import time

import daemon
import peers
from peers import IwarpPeer, TcpPeer, call_message

MIB = 1 << 20
GETATTR = 1
THREADS_AT_REST = 10 # the main thread and another of the program, two that start others, a sanitizer's; the rest opens folders


class StuckPeers(daemon.DaemonTest):
    def serve(self, of_daemon="", of_nfs="", name="only", after=""):
        """A daemon with these lines in its configuration."""
        folder = os.path.join(self.folder, name)
        os.makedirs(folder, exist_ok=True)
        config = os.path.join(folder, "config.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"""[daemon]
state = "{folder}/state"
shards = {daemon.shards(2)}
{of_daemon}
[metrics]
listen = "127.0.0.1:0"
[nfs]
listen = ["tcp://127.0.0.1:0", "iwarp://127.0.0.1:0"]
rpcbind = "no"
{of_nfs}
[[nfs.export]]
directory = "{self.data}"
{after}
""")
        return self.run_daemon("serve", config, folder=folder)

    def threads(self, d):
        """Of lanes, and of what has no name of its own but the program's. Not those of shards, scrapes, the log, or a sanitizer."""
        names = []
        for thread in os.listdir(f"/proc/{d.process.pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError): # it has ended
                with open(f"/proc/{d.process.pid}/task/{thread}/comm", encoding="utf-8") as name:
                    names.append(name.read().strip())
        self.assertIn("shard 0", names)
        self.assertEqual(names.count("log"), 1)
        own = [name for name in names if name != "log" and not name.startswith(("shard ", "civetweb-"))]
        self.assertIn("blocking start", own) # which starts those of lanes
        return len(own)

    def test_hundreds_of_exports_and_devices_at_rest_have_no_threads_of_their_own(self):
        """Each has a lane of 8 for calls that block, of which threads begin when they are needed."""
        of_exports = ""
        for number in range(500):
            folder = os.path.join(self.data, f"export{number}")
            os.mkdir(folder)
            of_exports += f'[[nfs.export]]\ndirectory = "{folder}"\npseudo = "/e{number}"\n'
        of_devices = "".join(f'[[block.device]]\nname = "d{number}"\nbackend = "nullblk"\n' for number in range(1000))
        d = self.serve(after=f'{of_exports}[block]\nlisten = ["iwarp://127.0.0.1:0"]\n{of_devices}', name="many")
        # One after the other they share one or two, as they are opened and as they are called; one may still be on its way to rest when the
        # next is needed.
        self.assertLessEqual(self.threads(d), THREADS_AT_REST + 8)
        until = time.monotonic() + 60 * daemon.SLOW
        while (threads := self.threads(d)) > THREADS_AT_REST: # a thread without work ends after 10 s
            self.assertLess(time.monotonic(), until, f"{threads} threads")
            time.sleep(0.2)
        caller = TcpPeer(d.port("tcp"))
        for number in range(0, 500, 10):
            caller.nfs(GETATTR, peers.opaque(caller.mount(f"/e{number}")))
        caller.close()
        self.assertLessEqual(d.metric("verbena_blocking_threads"), 8)
        self.assertLessEqual(self.threads(d), THREADS_AT_REST + 8)
        d.stop()

    def test_crc_that_the_daemon_asks_for(self):
        client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        for crc in ("false", "true"):
            d = self.serve(of_nfs=f"iwarp_crc = {crc}")
            url = f"nfs+iwarp://127.0.0.1:{d.port('iwarp')}/export?mountport={d.port('tcp')}"
            self.run_tool(client, "ls", url)
            self.assertEqual(d.metric("verbena_iwarp_crc_checked_total") > 0, crc == "true")
            d.stop()

    def stuck_peers(self, d):
        """Peers whose calls never end: one leaves an RDMA Read unanswered, one takes no replies, one does not finish starting."""
        stuck = IwarpPeer(d.port("iwarp"))
        target = stuck.create(stuck.mount(), "target")
        stuck.begin_write(target, 0, b"", length=MIB)
        stuck.receive_send(answer_reads=False)
        deaf = TcpPeer(d.port("tcp"), receive_buffer=4096)
        with open(os.path.join(self.data, "file"), "wb") as file:
            file.write(bytes(8 * MIB))
        read = peers.read_arguments(deaf.lookup(deaf.mount(), "file"), 0, MIB)
        for i in range(8):
            deaf.send(call_message(i, peers.READ, read))
        starting = socket.create_connection(("127.0.0.1", d.port("iwarp")))
        return [stuck, deaf, starting]

    def begin_drain(self, d):
        """Once it listens no more."""
        d.process.send_signal(daemon.signal.SIGTERM)
        with self.assertRaises(ConnectionRefusedError):
            while True:
                socket.create_connection(("127.0.0.1", d.port("tcp"))).close()
                time.sleep(0.01)

    def test_the_drain_lasts_as_long_as_it_may(self):
        """One daemon has an hour and one a second: stuck peers keep the first and not the second, which began later."""
        patient = self.serve(of_daemon="drain_seconds = 3600", name="patient")
        brief = self.serve(of_daemon="drain_seconds = 1", name="brief")
        stuck = self.stuck_peers(patient)
        others = self.stuck_peers(brief)
        self.begin_drain(patient)
        self.assertEqual(brief.stop(), 0, brief.log())
        self.assertIsNone(patient.process.poll(), patient.log())
        # When those have gone, nothing keeps it.
        for peer in stuck + others:
            peer.close()
        self.assertEqual(patient.process.wait(peers.LIMIT), 0)
        self.assertEqual(patient.stop(), 0, patient.log())
        self.assertEqual(os.path.getsize(os.path.join(self.data, "target")), 0)

    def test_the_drain_waits_for_calls_in_flight(self):
        d = self.serve(of_daemon="drain_seconds = 3600")
        peer = IwarpPeer(d.port("iwarp"))
        target = peer.create(peer.mount(), "target")
        data = random.Random(2).randbytes(MIB)
        xid = peer.begin_write(target, 0, data)
        peer.receive_send(answer_reads=False)
        self.begin_drain(d)
        peer.answer_reads()
        proc, rest = peer.answer(xid)
        self.assertEqual((proc, peers.Accepted(rest).nfs_status()), (0, 0))
        peer.ended()
        peer.close()
        self.assertEqual(d.stop(), 0, d.log())
        with open(os.path.join(self.data, "target"), "rb") as file:
            self.assertEqual(file.read(), data)


if __name__ == "__main__":
    daemon.main()
