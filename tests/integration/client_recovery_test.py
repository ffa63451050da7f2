#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The client `verbena` while its server dies and comes back: what the server lost is sent again, calls are
repeated under their XIDs, hard waits, soft gives up. A relay stands between them and stops at a chosen byte."""
import hashlib
import os
import random
import socket
import struct
import subprocess
import threading
import time

import daemon
import peers

MIB = 1 << 20


WAITED = (r"\A(verbena: 127\.0\.0\.1:\d+ \((?:tcp|iwarp)\) does not answer(?: \(.+\))?, still trying; --soft gives up\n"
          r"verbena: 127\.0\.0\.1:\d+ \((?:tcp|iwarp)\) answers now\n)%s\Z")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Xids:
    """Of the RPC records (RFC 5531 11) that pass in one direction, also of one that is cut short."""

    def __init__(self):
        self.seen = []
        self.skip = 0
        self.head = b""

    def pass_on(self, data):
        while data:
            if self.skip:
                n = min(self.skip, len(data))
                self.skip -= n
            else:
                n = min(8 - len(self.head), len(data))
                self.head += data[:n]
                if len(self.head) == 8:
                    mark, xid = struct.unpack(">2I", self.head)
                    self.seen.append(xid)
                    self.skip = (mark & 0x7fffffff) - 4
                    self.head = b""
            data = data[n:]


class Relay:
    """Carries connections to `port`, which may change; the first one only until `limit` bytes went to the
    server, if there is a limit."""

    def __init__(self, port, limit):
        self.port = port
        self.limit = limit
        self.full = threading.Event()
        self.once = False # further connections are refused
        self.connections = [] # (client's socket, server's socket, XIDs to the server, XIDs from it)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.at = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.once and self.connections:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                client.close()
                continue
            connection = (client, server, Xids(), Xids())
            limit = self.limit if not self.connections else None
            self.connections.append(connection)
            for source, to, xids, most in ((client, server, connection[2], limit),
                                           (server, client, connection[3], None)):
                threading.Thread(target=self.carry, args=(source, to, xids, most), daemon=True).start()

    def carry(self, source, to, xids, most):
        try:
            while most is None or most > 0:
                data = source.recv(65536 if most is None else min(most, 65536))
                if not data:
                    break
                xids.pass_on(data)
                to.sendall(data)
                if most is not None:
                    most -= len(data)
            if most == 0:
                self.full.set() # and nothing more moves until somebody ends it
                return
        except OSError:
            pass
        self.end(source, to)

    @staticmethod
    def end(*sockets):
        for s in sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        for client, server, _, _ in self.connections:
            self.end(client, server)

    def close(self):
        self.end(self.listener)
        self.listener.close()
        self.cut()
        for client, server, _, _ in self.connections:
            client.close()
            server.close()


class LosesReply(Relay):
    """Carries everything, but when a call of `procedure` has passed to the server it keeps back what comes
    from there, waits until `happened`, and cuts the connection. Once."""

    def __init__(self, port, procedure, happened):
        self.sought = struct.pack(">4I", 2, peers.NFS, 3, procedure) # RFC 5531 9: RPC version, program, version
        self.happened = happened
        self.doomed = () # the sockets of the connection that is cut
        super().__init__(port, None)

    def carry(self, source, to, xids, most):
        from_client = any(source is connection[0] for connection in self.connections)
        window = b""
        try:
            while data := source.recv(65536):
                if source in self.doomed:
                    continue # the reply, which goes nowhere
                window = (window + data)[-65552:]
                if from_client and not self.doomed and self.sought in window:
                    self.doomed = (source, to)
                    to.sendall(data)
                    limit = time.monotonic() + peers.LIMIT
                    while not self.happened() and time.monotonic() < limit:
                        time.sleep(0.01)
                    break
                to.sendall(data)
        except OSError:
            pass
        self.end(source, to)


class Copies(daemon.DaemonTest):
    SIZE = 20 * MIB # the client commits every 32 MiB
    options, query = (), "" # of the daemon and of the URL

    def setUp(self):
        super().setUp()
        self.client = os.path.join(os.path.dirname(daemon.BINARY), "verbena")
        self.source = os.path.join(self.folder, "source")
        with open(self.source, "wb") as file:
            file.write(random.Random(5).randbytes(self.SIZE))
        self.copy = os.path.join(self.data, "copy")

    def relay(self, d, transport, limit):
        relay = Relay(d.port(transport), limit)
        self.addCleanup(relay.close)
        return relay

    def begin_copy(self, transport, relay, *options, name="copy"):
        url = f"nfs+{transport}://127.0.0.1:{relay.at}/export/{name}{self.query}"
        client = subprocess.Popen([self.client, *options, "-q", "cp", self.source, url],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(client.stdout.close)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        return client

    def fail_power(self, d, *names):
        """The power fails: the server dies, and what it had not committed is lost; how many bytes."""
        d.process.kill()
        d.process.wait()
        lost = 0
        for name in names:
            lost += os.path.getsize(os.path.join(self.data, name))
            os.truncate(os.path.join(self.data, name), 0)
        return lost

    def end_of(self, client):
        output, _ = client.communicate(timeout=peers.LIMIT)
        return client.returncode, output

    def what_a_restart_lost_is_sent_again(self, transport):
        d = self.start("--shards", "2", *self.options)
        relay = self.relay(d, transport, 8 * MIB)
        client = self.begin_copy(transport, relay)
        self.assertTrue(relay.full.wait(peers.LIMIT))
        limit = time.monotonic() + peers.LIMIT
        while not d.metric("verbena_nfs_written_bytes_total"):
            self.assertLess(time.monotonic(), limit)
        self.assertIsNone(client.poll())
        self.assertGreater(self.fail_power(d, "copy"), 0)
        d = self.start("--shards", "2", *self.options)
        relay.cut() # first: nobody reconnects to the one that is gone
        relay.port = d.port(transport)
        self.assertEqual(self.end_of(client), (0, ""))
        self.assertEqual(digest(self.copy), digest(self.source))
        # All of it went to the second server: what the first one had taken and lost too.
        self.assertGreaterEqual(d.metric("verbena_nfs_written_bytes_total"), self.SIZE)
        return relay


class Recovery(Copies):
    """Version 3: what has no session is known by its XIDs alone."""
    query = "?vers=3"

    def test_what_a_restart_lost_is_sent_again_over_tcp(self):
        relay = self.what_a_restart_lost_is_sent_again("tcp")
        # What had no reply on a connection was asked again under its XID, behind it: by the next one, or if that ends too, by those then.
        xids = [(set(asked.seen), set(answered.seen)) for _, _, asked, answered in relay.connections]
        self.assertTrue(xids[0][0] - xids[0][1])
        for i, (asked, answered) in enumerate(xids[:-1]):
            self.assertLessEqual(asked - answered, set().union(*(later for later, _ in xids[i + 1:])))

    def test_what_a_restart_lost_is_sent_again_over_iwarp(self):
        self.what_a_restart_lost_is_sent_again("iwarp")

    def a_lost_reply_is_given_again(self, transport):
        d = self.start("--shards", "2")
        replayed = 'verbena_duplicate_requests_total{outcome="replayed"}'
        gone, made, moved = (os.path.join(self.data, name) for name in ("gone", "made", "moved"))
        with open(gone, "wb"):
            pass
        for count, (procedure, command, happened) in enumerate((
                # Done twice, each of them fails: EEXIST, ENOENT.
                (peers.MKDIR, ("mkdir", "made"), lambda: os.path.isdir(made)),
                (peers.RENAME, ("mv", "gone", "moved"), lambda: os.path.exists(moved)),
                (peers.REMOVE, ("rm", "moved"), lambda: not os.path.exists(moved))), 1):
            relay = LosesReply(d.port(transport), procedure, happened)
            self.addCleanup(relay.close)
            urls = [f"nfs+{transport}://127.0.0.1:{relay.at}/export/{name}?vers=3" for name in command[1:]]
            done = subprocess.run([self.client, command[0], *urls], capture_output=True, text=True,
                                  timeout=peers.LIMIT, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            self.assertTrue(relay.doomed)
            self.assertTrue(happened())
            self.assertGreaterEqual(len(relay.connections), 2)
            self.assertEqual(d.metric(replayed), count)

    def test_a_lost_reply_is_given_again_over_tcp(self):
        self.a_lost_reply_is_given_again("tcp")

    def test_a_lost_reply_is_given_again_over_iwarp(self):
        self.a_lost_reply_is_given_again("iwarp")

    def test_hard_waits_and_soft_gives_up(self):
        d = self.start("--shards", "2")
        relays = []
        clients = {}
        for transport in ("tcp", "iwarp"):
            patience = ["--timeout", str(5 * daemon.SLOW)] # a soft one gives up a server that is only slow
            for kind, options in (("hard", patience), ("soft", ["--soft", *patience])):
                relays.append((transport, self.relay(d, transport, 8 * MIB)))
                # A slow machine must not let one finish its work by a second connection before the server goes.
                relays[-1][1].once = True
                clients[kind + transport] = self.begin_copy(transport, relays[-1][1], *options,
                                                            name=kind + transport)
        for _, relay in relays:
            self.assertTrue(relay.full.wait(peers.LIMIT))
        self.fail_power(d, *clients)
        for _, relay in relays:
            relay.cut()
        for transport in ("tcp", "iwarp"):
            status, output = self.end_of(clients["soft" + transport])
            self.assertNotEqual(status, 0)
            self.assertRegex(output, "refused|closed|answer|reset|[Bb]roken pipe")
            self.assertIsNone(clients["hard" + transport].poll())
        d = self.start("--shards", "2")
        for transport, relay in relays:
            relay.port = d.port(transport)
            relay.once = False
        for transport in ("tcp", "iwarp"):
            status, output = self.end_of(clients["hard" + transport])
            self.assertEqual(status, 0)
            # Nobody waits in the dark: once for each silence, and once for its end.
            self.assertRegex(output, WAITED % ("+", ))
            self.assertEqual(digest(os.path.join(self.data, "hard" + transport)), digest(self.source))

    def test_a_server_that_stays_silent_is_asked_anew(self):
        d = self.start("--shards", "2")
        relay = self.relay(d, "tcp", 64 << 10) # within the first WRITE: a slow disk is not what is silent
        client = self.begin_copy("tcp", relay, "--timeout", "1")
        # Nobody cuts the first connection: the client gives it up by itself.
        status, output = self.end_of(client)
        self.assertEqual(status, 0)
        self.assertRegex(output, WAITED % ("+", ))
        self.assertTrue(relay.full.is_set())
        self.assertGreaterEqual(len(relay.connections), 2)
        self.assertEqual(digest(self.copy), digest(self.source))


if __name__ == "__main__":
    daemon.main()
