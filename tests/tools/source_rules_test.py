#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What suite `style` says of a source that knows more of NFS than it may."""
import sys
import unittest

sys.dont_write_bytecode = True
import source_rules

HEADERS = "protocols/include/verbena/protocols/nfs/"


def faults(name, *lines):
    return list(source_rules.nfs_faults(name, "\n".join(lines) + "\n"))


def includes(name, *headers):
    return faults(name, *(f"#include <verbena/protocols/nfs/{header}>" for header in headers))


class VersionsOfNfs(unittest.TestCase):
    def test_what_versions_share_and_version_3_do_not_know_version_4(self):
        for name in ("protocols/nfs/server/state_home.cpp", HEADERS + "server/state_home.hpp", "protocols/nfs/server/metrics.hpp",
                     "protocols/nfs/server/v3/server.cpp", HEADERS + "server/v3/server.hpp"):
            for header in ("server/v4/server.hpp", "server/v4/state_answers.hpp", "wire/v4/types.hpp"):
                self.assertEqual(includes(name, header), [f"<verbena/protocols/nfs/{header}>"], name)
        for name in ("protocols/nfs/client/written_file.cpp", "protocols/nfs/client/v3/client.cpp", HEADERS + "client/v3/client.hpp"):
            for header in ("client/v4/session.hpp", "wire/v4/types.hpp"):
                self.assertEqual(includes(name, header), [f"<verbena/protocols/nfs/{header}>"], name)
        self.assertEqual(includes("protocols/nfs/wire/v3/types.cpp", "wire/v4/types.hpp"), ["<verbena/protocols/nfs/wire/v4/types.hpp>"])

    def test_nor_name_its_types(self):
        self.assertEqual(faults("protocols/nfs/server/v3/server.cpp", "v4::nfsstat4 status;"), ["v4::nfsstat4"])
        self.assertEqual(faults("protocols/nfs/server/state_home.cpp", "int a; // as v4::server has it"), [])
        self.assertEqual(faults("protocols/nfs/server/v4/server.cpp", "v4::nfsstat4 status;"), [])

    def test_a_private_header_is_one_too(self):
        self.assertEqual(faults("protocols/nfs/server/metrics.hpp", '#include "v4/compound.hpp"'), ["<v4/compound.hpp>"])
        self.assertEqual(faults("protocols/nfs/server/v3/server.cpp", '#include "../v4/compound.hpp"'), ["<../v4/compound.hpp>"])
        self.assertEqual(faults("protocols/nfs/server/v4/operations/opens.cpp", '#include "../compound.hpp"'), [])
        self.assertEqual(faults("protocols/nfs/server/v3/metrics.cpp", '#include "../metrics.hpp"'), [])

    def test_version_4_knows_what_is_shared(self):
        self.assertEqual(includes("protocols/nfs/server/v4/server.cpp", "server/state_home.hpp", "wire/v4/types.hpp", "wire/v3/types.hpp",
                                  "user_names.hpp"), [])
        self.assertEqual(includes("protocols/nfs/client/v4/session.cpp", "client/v3/client.hpp"),
                         ["<verbena/protocols/nfs/client/v3/client.hpp>"])
        self.assertEqual(includes("protocols/nfs/server/v4/storage.cpp", "server/v3/storage.hpp"), [])

    def test_both_ends_are_strangers(self):
        self.assertEqual(includes("protocols/nfs/server/exports.cpp", "client/patience.hpp"), ["<verbena/protocols/nfs/client/patience.hpp>"])
        self.assertEqual(includes("protocols/nfs/wire/v4/types.cpp", "server/exports.hpp"), ["<verbena/protocols/nfs/server/exports.hpp>"])

    def test_the_rest_is_no_business_of_this_rule(self):
        self.assertEqual(faults("protocols/nfs/server/state_home.cpp", "#include <verbena/core/task/task.hpp>",
                                "#include <verbena/protocols/files/types.hpp>", "#include <algorithm>", "#include <sys/stat.h>"), [])
        self.assertEqual(includes("services/verbenad/main.cpp", "server/v4/server.hpp"), [])


if __name__ == "__main__":
    unittest.main()
