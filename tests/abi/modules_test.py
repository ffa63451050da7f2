#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""modules_test.py VERBENAD VERBENAD_BARE VERBENA ODD_MODULE FOLDER: modules that do not fit or go wrong never run, or end with a
message that says why; each of verbena's own works as a file too."""
import os
import pathlib
import random
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

VERBENAD, BARE, VERBENA, ODD, FOLDER = "", "", "", "", ""
LIMIT = 60 * int(os.environ.get("VERBENA_SLOW", "1")) # seconds that a sanitizer's program may take to start


class Modules(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="verbena-modules-")
        self.addCleanup(shutil.rmtree, self.folder)

    def run_it(self, *arguments, program="", odd=""):
        return subprocess.run([program or VERBENAD, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False,
                              env={**os.environ, "VERBENA_ODD": odd})

    def refuses(self, *arguments, saying, odd="", status=2):
        done = self.run_it(*arguments, odd=odd)
        self.assertEqual(done.returncode, status, done.stderr)
        for part in (saying if isinstance(saying, tuple) else (saying,)):
            self.assertIn(part, done.stderr)
        self.assertNotIn("terminate called", done.stderr)
        return done

    def copy(self, name="copy.so", edit=None, mode=0o644):
        path = pathlib.Path(self.folder) / name
        data = bytearray(pathlib.Path(ODD).read_bytes())
        if edit:
            data = edit(data)
        path.write_bytes(data)
        path.chmod(mode)
        return str(path)

    def replaced(self, old, new):
        """A copy of the module in whose note one line differs."""
        self.assertEqual(len(old), len(new))
        def edit(data):
            at = data.find(old)
            self.assertGreater(at, 0, old)
            data[at:at + len(old)] = new
            return data
        return self.copy(edit=edit)

    def config(self, text):
        path = pathlib.Path(self.folder) / "verbenad.toml"
        path.write_text(f'modules = ["{ODD}"]\n[daemon]\nstate = "{self.folder}/state"\nshards = 2\ndrain_seconds = 0\n'
                        f'[metrics]\nlisten = "off"\n{text}', encoding="utf-8")
        return str(path)

    # What does not fit, before any of its code runs.

    def test_a_module_that_fits(self):
        done = self.run_it("module", "check", ODD)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, rf"^{re.escape(ODD)}: fits: a module of the role program, built with (clang|gcc) \d+\n$")
        done = self.run_it("--module", ODD, "modules")
        self.assertRegex(done.stdout, rf"(?m)^odd +0\.0\.1 +protocol +- +{re.escape(ODD)} +goes wrong wherever it is told to$")
        done = self.run_it("modules", self.config(""))
        self.assertRegex(done.stdout, r"(?m)^odd +0\.0\.1 ")

    def test_each_difference_of_the_build_is_named_with_both_sides(self):
        data = pathlib.Path(ODD).read_bytes()
        for key in (b"epoch=", b"compiler=", b"c++ abi=", b"string abi=", b"libstdc++ checks=", b"assert()=", b"sanitizer="):
            line = re.search(re.escape(key) + rb"[^\n]+\n", data)[0]
            value = line[len(key):-1]
            other = b"9" * len(value)
            path = self.replaced(b"\n" + line, b"\n" + key + other + b"\n")
            said = f"{key[:-1].decode()}: the module has {other.decode()}, this program {value.decode()}"
            self.refuses("--module", path, "modules", saying=(path, "built against another verbena", said), odd="create_throws")
            done = self.run_it("module", "check", path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stdout)

    def test_a_type_that_changed_is_named(self):
        data = pathlib.Path(ODD).read_bytes()
        for name in (b"verbena::rpc::program", b"verbena::module_descriptor", b"verbena::task"):
            line = re.search(b"\n" + re.escape(name) + rb"=[0-9a-f]{12}\n", data)[0]
            path = self.replaced(line, line[:-13] + b"000000000000\n")
            self.refuses("--module", path, "modules",
                         saying=f"the type {name.decode()}: the module was built against another definition (000000000000, here ")

    def test_a_type_that_only_one_side_knows(self):
        path = self.replaced(b"\nverbena::rpc::program=", b"\nverbena::rpc::progrem=")
        self.refuses("--module", path, "modules", saying=("the type verbena::rpc::progrem: only the module knows it",
                                                          "the type verbena::rpc::program: only this program knows it"))

    def test_an_unknown_role(self):
        path = self.replaced(b"role=program\n", b"role=progrem\n")
        self.refuses("--module", path, "modules", saying='of the role "progrem", which this program does not know')

    def other(self, name):
        return str(pathlib.Path(ODD).parent / f"{name}.so")

    def test_a_role_that_is_not_the_objects(self):
        """What only its real role may use was compared with nothing."""
        path = self.other("odd_role")
        self.assertEqual(self.run_it("module", "check", path).returncode, 0) # nothing of it runs there
        self.refuses("--module", path, "modules", saying=(path, "odd is declared as VERBENA_MODULE(verbs, ...), but is a protocol: "
                                                          "write VERBENA_MODULE(program, ...)"))

    def test_what_nobody_has_is_told_before_it_is_loaded(self):
        path = self.other("odd_undefined")
        done = self.run_it("module", "check", path)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(f"{path}: does not fit: it uses what neither it nor this program has", done.stdout)
        self.assertEqual(sorted(line.strip() for line in done.stdout.splitlines()[1:]),
                         ["verbena::nobody_has_this(int)", "verbena_test_nor_this"])
        self.refuses("--module", path, "modules", saying=(path, "can't be loaded", "undefined symbol"))

    def test_files_that_are_no_modules(self):
        self.refuses("--module", self.folder + "/none.so", "modules", saying="No such file or directory: write the path")
        self.refuses("--module", "none", "modules", saying="verbena/modules/none.so: No such file")
        self.refuses("--module", self.folder, "modules", saying="is no file that could be a module")
        self.refuses("--module", "/etc/passwd", "modules", saying="is no ELF file")
        self.refuses("--module", VERBENAD, "modules", saying="is no module of verbena: it has no note")
        libc = next(line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text("utf-8").splitlines()
                    if "libc.so" in line)
        self.refuses("--module", libc, "modules", saying="is no module of verbena: it has no note")
        fifo = self.folder + "/fifo"
        os.mkfifo(fifo)
        self.refuses("--module", fifo, "modules", saying="is no file that could be a module")
        self.refuses("--module", self.copy(edit=lambda data: b""), "modules", saying="is a damaged ELF file")

    def test_damaged_files_are_refused_and_never_run(self):
        data = pathlib.Path(ODD).read_bytes()
        table, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
        loaded = max(sum(struct.unpack_from("<QQQQ", data, at + 8)[i] for i in (0, 3))
                     for at in range(table, table + size * count, size) if struct.unpack_from("<I", data, at)[0] == 1)
        for cut in (16, 63, 64, 200, loaded - 1):
            path = self.copy(edit=lambda data, cut=cut: data[:cut])
            done = self.run_it("module", "check", path)
            self.assertEqual(done.returncode, 1, (cut, done.stdout))
            self.assertTrue(done.stdout.startswith(path + ": is "), done.stdout)
        # Offsets and counts of the headers, each at its worst.
        for at, form in ((32, "<Q"), (56, "<H"), (54, "<H")):
            def edit(data, at=at, form=form):
                struct.pack_into(form, data, at, 2 ** (8 * struct.calcsize(form)) - 1)
                return data
            done = self.run_it("module", "check", self.copy(edit=edit))
            self.assertEqual(done.returncode, 1, (at, done.stdout))
            self.assertIn("damaged ELF file", done.stdout)

    def test_two_notes(self):
        def edit(data):
            # Another note of the file is given our name and type.
            at = data.find(b"\x04\x00\x00\x00\x14\x00\x00\x00\x03\x00\x00\x00GNU\x00")
            if at < 0:
                self.skipTest("the linker writes no build id")
            data[at:at + 16] = b"\x08\x00\x00\x00\x10\x00\x00\x00\x01\x00\x00\x00verb"
            data[at + 16:at + 20] = b"ena\x00"
            return data
        done = self.run_it("module", "check", self.copy(edit=edit))
        self.assertEqual(done.returncode, 1)
        self.assertIn("has two notes", done.stdout)

    def test_others_may_not_decide_what_runs(self):
        for mode in (0o664, 0o646):
            self.refuses("--module", self.copy(mode=mode), "modules", saying="others may write to it")
        open_folder = pathlib.Path(self.folder) / "open"
        open_folder.mkdir()
        path = open_folder / "odd.so"
        shutil.copy(ODD, path)
        path.chmod(0o644)
        open_folder.chmod(0o777)
        self.refuses("--module", str(path), "modules", saying=f"lies in {open_folder}, where others may write")
        done = self.run_it("module", "check", str(path))
        self.assertEqual(done.returncode, 1)
        self.assertIn("where others may write", done.stdout)
        # Where a link leads is what counts.
        link = pathlib.Path(self.folder) / "link.so"
        link.symlink_to(path)
        self.refuses("--module", str(link), "modules", saying=f"lies in {open_folder}, where others may write")
        open_folder.chmod(0o777 | stat.S_ISVTX)
        self.assertEqual(self.run_it("--module", str(path), "modules").returncode, 0)
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
            self.refuses("--module", str(path), "modules", saying="belongs to user 65534")
            os.chown(path, 0, 0)
            os.chown(open_folder, 65534, 65534)
            self.refuses("--module", str(path), "modules", saying=f"lies in {open_folder}, which belongs to user 65534")

    def test_a_list_of_modules_is_a_list(self):
        path = pathlib.Path(self.folder) / "f.toml"
        path.write_text('modules = "odd"\n', encoding="utf-8")
        self.refuses("serve", str(path), saying="f.toml:1:11: modules must be a list of strings")
        self.refuses("modules", str(path), saying="f.toml:1:11: modules must be a list of strings")
        path.write_text("daemon = 5\n", encoding="utf-8")
        self.refuses("serve", str(path), "--log-level", "info", saying="f.toml:1:10: daemon must be a table")
        self.refuses("modules", "--module", ODD, saying="the option --module stands in front of the command")
        path.write_text('modules = ["/none.so"]\n', encoding="utf-8")
        self.refuses("serve", str(path), saying="f.toml:1:12: /none.so: No such file")

    # What goes wrong later.

    def test_a_module_that_cannot_be_made(self):
        for odd, saying in (("create_throws", "odd can't be made: odd: no disk"),
                            ("create_throws_a_number", "no std::exception"), ("create_returns_nothing", "returned nothing"),
                            ("bad_name", "its name \"Odd\" must be"), ("other_size", "its descriptor has 8 bytes"),
                            ("reserved_name", "a protocol can't be called daemon")):
            self.refuses("--module", ODD, "modules" if odd != "reserved_name" else "odd", saying=(ODD, saying), odd=odd)
        self.refuses("--module", ODD, "--module", ODD, "modules", saying="the name odd is taken")

    def test_needs(self):
        self.refuses("--module", ODD, "odd", saying="needs the module nobody_has_this, which is not here: load it too",
                     odd="needs_nobody")
        self.refuses("--module", ODD, "odd", saying="in a circle, so that none can be started first: odd needs odd",
                     odd="needs_itself")

    def test_a_module_that_throws(self):
        for way in ("configure", "prepare", "start", "programs", "listening"):
            done = self.refuses("serve", self.config(f'[odd]\nway = "{way}"\n'), saying=f"odd: {way} fails", status=1)
            # What was started is stopped, and nothing else.
            self.assertEqual("odd: stopped" in done.stderr, way not in ("configure", "prepare"), way)
        self.refuses("serve", self.config('[odd]\nway = "logic"\n'), saying="nobody_declared_this", status=1)
        self.refuses("serve", self.config('[odd]\nway = "number"\n'), status=1,
                     saying="module odd: it threw something that is no std::exception")
        # The end of a start that failed is bounded, too.
        path = pathlib.Path(self.config('[odd]\nway = "stop_stalls"\n'))
        path.write_text(path.read_text("utf-8").replace('"off"', '"192.0.2.1:9464"'), encoding="utf-8")
        done = self.refuses("serve", str(path), saying=("metrics 192.0.2.1:9464: can't listen there", "module=odd"), status=1)

    def test_programs_that_cannot_be_served(self):
        for way, saying in (("no_program", "make_programs() gave no program"), ("null_program", "a program that is null"),
                            ("program_twice", "the program 536871065 (odd) twice, with version 1: a call could go to either"),
                            ("many_versions", "with versions 2 to 4294967295: they must be 1 to 64")):
            self.refuses("serve", self.config(f'[odd]\nway = "{way}"\n'), saying=("module odd: ", saying), status=1)
        process, _ = self.start("serve", self.config('[odd]\nway = "other_version"\n'))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=LIMIT), 0)

    def test_no_two_protocols_at_one_address(self):
        text = "".join(f'[{name}]\nlisten = ["tcp://127.0.0.1:5999"]\n' for name in ("nfs", "odd"))
        path = self.config(text + f'[[nfs.export]]\ndirectory = "{self.folder}"\n')
        self.refuses("serve", "--check", path, saying="127.0.0.1:5999 stands twice")

    def start(self, *arguments, program=""):
        process = subprocess.Popen([program or VERBENAD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stdout.close(), process.stderr.close()))
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if lines[-1] == "ready":
                return process, lines
        self.fail(f"it does not start: {lines} {process.stderr.read()}")

    def test_a_module_that_stalls_in_stop_is_named(self):
        process, _ = self.start("serve", self.config('[odd]\nway = "stop_stalls"\n'))
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=LIMIT)[1]
        self.assertEqual(process.returncode, 1, said)
        self.assertRegex(said, r"a module that does not return.*module=odd")

    def test_settings_and_commands_come_from_the_module(self):
        self.refuses("serve", self.config('[odd]\nwey = "none"\n'), saying="unknown key odd.wey; did you mean way?")
        self.refuses("--module", ODD, "odd", "--way", "all", saying="--way all: must be none, configure")
        process, lines = self.start("--module", ODD, "odd", "--metrics", "off", "--state", self.folder, "--shards", "1")
        self.assertTrue(any(line.startswith("listening at tcp://127.0.0.1:") for line in lines), lines)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=LIMIT), 0)

    def test_a_filter_that_changes_bytes_lets_none_of_those_below_out(self):
        """It overrides read() and write() alone. Large enough for all ways that a server has to send what lies in a file."""
        data = pathlib.Path(self.folder) / "data"
        data.mkdir()
        plain = random.Random(5).randbytes(300_000)
        source = pathlib.Path(self.folder) / "plain"
        source.write_bytes(plain)
        path = pathlib.Path(self.folder) / "verbenad.toml"
        path.write_text(f'modules = ["{self.other("xor_filter")}"]\n[daemon]\nstate = "{self.folder}/state"\nshards = 1\n'
                        f'[metrics]\nlisten = "off"\n[nfs]\nlisten = ["tcp://127.0.0.1:0", "iwarp://127.0.0.1:0"]\nrpcbind = "no"\n'
                        f'[[nfs.export]]\ndirectory = "{data}"\nroot_squash = false\n[[nfs.export.filter]]\nname = "xor"\n',
                        encoding="utf-8")
        process, lines = self.start("serve", str(path))
        port = {line.split("://")[0].split()[-1]: line.rsplit(":", 1)[1] for line in lines if line.startswith("listening at")}

        def verbena(*arguments):
            done = subprocess.run([VERBENA, *arguments], capture_output=True, timeout=LIMIT, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout
        for version in ("3", "4.2"):
            for transport in ("tcp", "iwarp"):
                with self.subTest(version=version, transport=transport):
                    url = f"nfs+{transport}://127.0.0.1:{port[transport]}/export"
                    more = f"?vers={version}" + (f"&mountport={port['tcp']}" if version == "3" else "")
                    name = f"{version}{transport}"
                    verbena("cp", str(source), f"{url}/{name}{more}")
                    below = (data / name).read_bytes()
                    self.assertEqual(bytes(b ^ (i * 7 + 90 & 255) for i, b in enumerate(below)), plain)
                    for _ in range(2): # the second time it is open, and in memory
                        self.assertEqual(verbena("cat", f"{url}/{name}{more}"), plain)
                    # By COPY, where version and server have it.
                    verbena("cp", f"{url}/{name}{more}", f"{url}/{name}.copy{more}")
                    self.assertEqual(verbena("cat", f"{url}/{name}.copy{more}"), plain)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=LIMIT), 0)

    # Verbena's own.

    def test_each_bundled_module_works_as_a_file(self):
        names = sorted(path.stem for path in pathlib.Path(FOLDER).glob("*.so") if not path.stem.startswith("nbdkit-"))
        self.assertEqual(names, ["block", "delay", "error", "fileblk", "limit", "memfs", "mount", "nfs", "nullblk", "posixfs", "ramblk"])
        self.assertEqual(self.run_it("modules", program=BARE).stdout.count("\n"), 1)
        listed = ", ".join(f'"{FOLDER}/{name}.so"' for name in names)
        data = pathlib.Path(self.folder) / "data"
        data.mkdir()
        (data / "file").write_text("by a file\n", encoding="utf-8")
        path = pathlib.Path(self.folder) / "verbenad.toml"
        filters = "".join(f'[[nfs.export.filter]]\nname = "{name}"\n{keys}\n' for name, keys in
                          (("limit", "client_operations = 100000"), ("delay", "read_milliseconds = 1"), ("error", "every = 0")))
        path.write_text(f'modules = [{listed}]\n[daemon]\nstate = "{self.folder}/state"\nshards = 1\n'
                        f'[metrics]\nlisten = "off"\n[nfs]\nlisten = ["tcp://127.0.0.1:0", "iwarp://127.0.0.1:0"]\n'
                        f'rpcbind = "no"\n[[nfs.export]]\ndirectory = "{data}"\n{filters}'
                        f'[[nfs.export]]\nbackend = "memfs"\npseudo = "/m"\n'
                        f'[block]\nlisten = ["iwarp://127.0.0.1:0"]\n[[block.device]]\nname = "ram"\nsize = "1M"\n'
                        f'[[block.device]]\nname = "null"\nbackend = "nullblk"\n'
                        f'[[block.device]]\nname = "file"\npath = "{self.folder}/disk.img"\nsize = "1M"\n', encoding="utf-8")
        process, lines = self.start("serve", str(path), program=BARE)
        self.assertTrue(any("filter=limit,filter=delay,filter=error" in line for line in lines), lines)
        # Those of block stand first.
        port = {line.split("://")[0].split()[-1]: line.rsplit(":", 1)[1] for line in lines if line.startswith("listening at")}
        self.assertIn("device null from nullblk (rw), 1073741824 bytes, to this host only", lines)
        self.assertIn(f"device file from {self.folder}/disk.img (rw), 1048576 bytes, to this host only", lines)
        for url in (f"nfs+tcp://127.0.0.1:{port['tcp']}", f"nfs+iwarp://127.0.0.1:{port['iwarp']}"):
            more = f"?mountport={port['tcp']}"
            done = subprocess.run([VERBENA, "cat", f"{url}/export/file{more}"], capture_output=True, text=True, timeout=LIMIT,
                                  check=False)
            self.assertEqual(done.stdout, "by a file\n", done.stderr)
            done = subprocess.run([VERBENA, "cp", str(data / "file"), f"{url}/m/copy{more}"], capture_output=True, text=True,
                                  timeout=LIMIT, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=LIMIT), 0)


if __name__ == "__main__":
    VERBENAD, BARE, VERBENA, ODD, FOLDER = sys.argv[1:6]
    unittest.main(argv=sys.argv[:1] + sys.argv[6:])
