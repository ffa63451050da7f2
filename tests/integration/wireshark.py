# SPDX-License-Identifier: Apache-2.0
"""What others read on the wire: captures of loopback by dumpcap, decoded by tshark."""
import ctypes
import os
import re
import secrets
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

LIMIT = 60 * int(os.environ.get("VERBENA_SLOW", "1")) # seconds for anything that must come

READLINK, READ = 5, 6 # NFS
SEND, SEND_INVALIDATE = 3, 4 # RDMAP

# Where Wireshark shows something odd in a capture of a stock kernel's client on a stock kernel's server, too
# (the lab's scenario `capture` records it and compares): Wireshark 4.0 knows MPA's revision 1 only, and flag S and
# revision 2 are what NFS over siw asks for (RFC 6581).
KERNELS_TOO = {
    "iwarp_mpa: Res field is NOT set to zero as required by RFC 5044",
    "iwarp_mpa: Rev field is NOT set to one as required by RFC 5044",
}

# Ports are the kernel's choice and may be known for other protocols.
OPTIONS = ["-o", "tcp.try_heuristic_first:TRUE", "-o", "iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE"]

SEGMENT = 65_000 # octets of payload that fit in an IPv4 packet
MPA_HEADER = 20 # of a request or reply, before its private data (RFC 5044, section 7.1.1)

PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4


def may_capture():
    """If this program may not capture, runs it again in a network namespace of its own, where it may."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except PermissionError:
        os.execvp("unshare", ["unshare", "--map-current-user", "--keep-caps", "--net", "sh", "-c",
                              'ip link set lo up && exec "$0" "$@"', sys.executable, *sys.argv])


def without_capabilities():
    """For a child of such a program: it is as any other of the user."""
    if os.geteuid() != 0:
        ctypes.CDLL(None).prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


class Capture:
    """Everything from and to a TCP port of loopback, until stop(); see may_capture()."""

    def __init__(self, folder, port):
        self.path = os.path.join(folder, f"{port}.pcapng")
        self.beacon = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.beacon.bind(("127.0.0.1", 0))
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            ["dumpcap", "-q", "-i", "lo", "-B", "64", "-w", self.path,
             "-f", f"tcp port {port} or udp port {self.beacon.getsockname()[1]}"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        try:
            self.mark()
        except BaseException:
            self.kill()
            raise

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def mark(self):
        """Waits until a datagram sent now is in the file, and with it all that was sent before."""
        end = time.monotonic() + LIMIT
        text = secrets.token_bytes(32)
        while True:
            self.beacon.sendto(text, self.beacon.getsockname())
            time.sleep(0.1)
            if os.path.exists(self.path):
                with open(self.path, "rb") as file:
                    if text in file.read():
                        return
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"dumpcap does not capture: {self.said()}")

    def stop(self):
        """The file, in which no packet is missing."""
        self.mark()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(LIMIT)
        counts = re.search(r"received/dropped on interface .*: (\d+)/(\d+)", self.said())
        if not counts or counts[2] != "0":
            raise AssertionError(f"the capture is not whole: {self.said()}")
        self.kill()
        return self.path

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.beacon.close()
        self.log.close()


class Layer:
    """One protocol's part of a packet: its name, its fields' values, and what Wireshark's experts say of it."""

    def __init__(self, element):
        self.name = element.get("name")
        self.title = element.get("showname") or ""
        self.element = element
        self.odd = [f"{self.name}: {text}" for text in self.all("_ws.expert.message")]

    def all(self, field, below=None):
        """The values of a field, in their order, as they are shown; `below`: only those within that other field."""
        found = self.element if below is None else self.element.find(f".//field[@name='{below}']")
        return [] if found is None else [f.get("show") for f in found.iter("field") if f.get("name") == field]

    def titles(self, field):
        """What Wireshark writes for a field."""
        return [f.get("showname") for f in self.element.iter("field") if f.get("name") == field]

    def numbers(self, field, below=None):
        return [int(value, 0) for value in self.all(field, below)]

    def number(self, field):
        value, = self.numbers(field)
        return value


def tshark(*words):
    with tempfile.TemporaryDirectory() as empty: # the user's preferences are not the test's
        done = subprocess.run(["tshark", *words], env={**os.environ, "WIRESHARK_CONFIG_DIR": empty},
                              capture_output=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise AssertionError(f"tshark: {done.stderr[-2000:]}")
    return done.stdout


class Direction:
    """What one end of a TCP connection sent: its octets in order, cut into MPA's frames."""

    def __init__(self, sequence):
        self.next = self.sent = sequence # of the octet to come, and of the first that is in no frame yet; not wrapped
        self.early = {} # segments behind a gap, by their first octet
        self.octets = b""
        self.started = False

    def add(self, sequence, payload):
        self.early[self.next + (sequence - self.next + 2**31) % 2**32 - 2**31] = payload
        for begin in sorted(self.early):
            if begin > self.next:
                break
            new = self.early.pop(begin)[self.next - begin:] # what was sent before is not new
            self.octets += new
            self.next += len(new)

    def frame(self):
        """The length of the next frame, None if its head has not come. Octets that are not MPA's are one frame."""
        if self.started:
            if len(self.octets) < 2:
                return None
            length = 2 + int.from_bytes(self.octets[:2], "big")
            return length + -length % 4 + 4 # a pad, and the CRC
        if not b"MPA ID Re".startswith(self.octets[:9]):
            return len(self.octets) or None
        if len(self.octets) < MPA_HEADER:
            return None
        return MPA_HEADER + int.from_bytes(self.octets[MPA_HEADER - 2:MPA_HEADER], "big")

    def frames(self, end=False):
        """(sequence number, octets) of all that are whole; at the `end` of the connection of the rest, too."""
        while self.octets:
            length = self.frame()
            if length is None or length > len(self.octets):
                if not end:
                    return
                length = len(self.octets)
            yield self.sent, self.octets[:length]
            self.octets = self.octets[length:]
            self.sent += length
            self.started = True


def a_frame_a_segment(path):
    """A copy of a capture in which every frame of MPA has a TCP segment of its own, or several if it must.

    Which frames share a segment is the kernel's choice, and Wireshark 4.0 errs where some do: it decodes the first Send
    alone, puts the pieces of Read chunks together wrongly, and loses a frame that only begins behind a reply that it
    takes for malformed (docs/howto/wireshark.md). Every octet, and the order in which the frames were whole, stay.
    """
    fields = ("frame.time_epoch", "ip.src", "ip.dst", "tcp.srcport", "tcp.dstport", "tcp.seq_raw", "tcp.ack_raw",
              "tcp.flags", "tcp.payload")
    lines = tshark("-r", path, "-Y", "tcp", "-o", "tcp.desegment_tcp_streams:FALSE", "-T", "fields",
                   *(word for field in fields for word in ("-e", field))).decode().splitlines()
    directions = {}
    written = f"{path}.frames"
    with open(written, "wb") as file:
        file.write(struct.pack("=I2H4I", 0xa1b2c3d4, 2, 4, 0, 0, 2**18, 101)) # bare IP packets

        def segment(ends, moment, sequence, acknowledged, flags, payload=b""):
            addresses, ports = ends[:2], ends[2:]
            packet = (struct.pack(">BxH4xBB2x", 0x45, 40 + len(payload), 64, socket.IPPROTO_TCP)
                      + b"".join(map(socket.inet_aton, addresses))
                      + struct.pack(">2H2IBBH4x", *map(int, ports), sequence % 2**32, acknowledged, 5 << 4, flags, 65535)
                      + payload)
            file.write(struct.pack("=4I", int(moment), int(moment % 1 * 1e6), len(packet), len(packet)) + packet)

        for line in lines:
            moment, *ends, sequence, acknowledged, flags, payload = line.split("\t")
            moment, ends, sequence, acknowledged = float(moment), tuple(ends), int(sequence), int(acknowledged)
            flags, payload = int(flags, 0), bytes.fromhex(payload)
            start, final = flags & 0x02, flags & 0x05 # SYN; FIN, RST
            if start:
                directions[ends] = Direction(sequence + 1)
                segment(ends, moment, sequence, acknowledged, flags)
                continue
            direction = directions[ends]
            if payload:
                direction.add(sequence, payload)
            for at, frame in direction.frames(end=bool(final)):
                for begin in range(0, len(frame), SEGMENT):
                    segment(ends, moment, at + begin, acknowledged, 0x18, frame[begin:begin + SEGMENT])
            if final:
                segment(ends, moment, direction.next, acknowledged, flags)
        for ends, direction in directions.items():
            if direction.early:
                raise AssertionError(f"the capture lacks a segment from {ends}")
            for at, frame in direction.frames(end=True):
                segment(ends, moment, at, 0, 0x18, frame)
    return written


def packets(path):
    """Each TCP packet of a capture as the list of its layers."""
    tree = xml.etree.ElementTree.fromstring(tshark("-r", a_frame_a_segment(path), "-Y", "tcp", "-T", "pdml", *OPTIONS))
    return [[Layer(proto) for proto in packet.findall("proto")] for packet in tree.iter("packet")]


def packets_of_rpc(path):
    """Each packet of a capture of RPC over TCP as the list of its layers."""
    tree = xml.etree.ElementTree.fromstring(tshark("-r", path, "-Y", "rpc", "-T", "pdml", *OPTIONS))
    return [[Layer(proto) for proto in packet.findall("proto")] for packet in tree.iter("packet")]


def filled(header):
    """Whether a reply's RPC-over-RDMA header returns a Write chunk with something in it."""
    return sum(header.numbers("rpcordma.rdma_length", "rpcordma.writes_count")) > 0


def complaints(packet):
    """What the experts say of a packet that they do not say of kernels, too. TCP is the kernel's here as there."""
    header = rpc = None
    for layer in packet:
        if layer.name == "rpcordma":
            header = layer
        elif layer.name == "rpc":
            rpc = layer
        elif layer.name == "_ws.malformed":
            # Wireshark 4.0 looks for the data that a Write chunk took away.
            if (header and filled(header) and layer.title == "[Malformed Packet: NFS]"
                    and rpc.numbers("rpc.msgtyp") == [1] and rpc.numbers("rpc.procedure") in ([READLINK], [READ])):
                continue
        if layer.name != "tcp":
            yield from (f"{layer.title}: {text}" for text in layer.odd if text not in KERNELS_TOO)


def calls(dissected, kind):
    """Of each (program, procedure) the XIDs of its calls (kind 0) or replies (1)."""
    found = {}
    for layer in (layer for packet in dissected for layer in packet if layer.name == "rpc"):
        if layer.number("rpc.msgtyp") == kind:
            of = (layer.number("rpc.program"), layer.number("rpc.procedure"))
            found.setdefault(of, set()).add(layer.number("rpc.xid"))
    return found


def undecoded(packet):
    """How many Sends of a packet are not decoded."""
    return sum(layer.name == "iwarp_ddp_rdmap" and layer.number("iwarp_rdma.opcode") in (SEND, SEND_INVALIDATE)
               and (behind is None or behind.name != "rpcordma") for layer, behind in zip(packet, packet[1:] + [None]))


def form(header, by_requester):
    """Names the form of RFC 8166 in which a message travels."""
    kind = ("RDMA_MSG", "RDMA_NOMSG")[header.number("rpcordma.msg_type")]
    positions = header.numbers("rpcordma.position")
    if by_requester:
        lists = sorted({"Position-Zero Read chunk" if p == 0 else "Read chunk" for p in positions})
        lists += ["Write chunk"] if header.number("rpcordma.writes_count") else []
        lists += ["Reply chunk"] if header.number("rpcordma.reply_count") else []
    else:
        lists = ["filled Write chunk"] if filled(header) else []
        if sum(header.numbers("rpcordma.rdma_length", "rpcordma.reply_count")) > 0:
            lists.append("filled Reply chunk")
    return " + ".join([kind, *lists])


def placed(dissected, opcode):
    """Octets of payload in RDMAP messages of a tagged opcode."""
    total = 0
    for packet in dissected:
        for mpa, ddp in zip(packet, packet[1:]):
            if (mpa.name, ddp.name) == ("iwarp_mpa", "iwarp_ddp_rdmap") and ddp.number("iwarp_rdma.opcode") == opcode:
                total += mpa.number("iwarp_mpa.ulpdulength") - 14 # control, steering tag, offset
    return total
