// SPDX-License-Identifier: Apache-2.0
#include "../../../services/client/doctor/facts.hpp"
#include "../../../services/client/doctor/path_size.hpp"
#include "../../../services/client/doctor/texts.hpp"
#include "../checks.hpp"

#include <boost/test/unit_test.hpp>
#include <linux/capability.h>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(doctor_texts_test)

using namespace verbena::cli;

BOOST_AUTO_TEST_CASE(sockets_that_listen)
{
    // As Linux 6.1 writes them: one that listens, one that is connected, and lines of another form.
    const std::string table =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:0801 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 "
        "0\n"
        "   1: 0100007F:0801 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 "
        "0\n"
        "   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 "
        "0\n"
        "   3: 00000000:10016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4714 1 "
        "0\n"
        "   4: 00000000 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4715 1 0\n"
        "   5: 00000000:0017 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 x 1 0\n"
        "   6: 00000000:0018 00000000:0000 0A";
    const std::vector<listening_socket> all = listening_sockets(table);
    BOOST_REQUIRE(all.size() == 2U);
    BOOST_TEST(all[0].port == 2049);
    BOOST_TEST(all[0].inode == 4711U);
    BOOST_TEST(!all[0].is_wildcard);
    BOOST_TEST(all[0].address == in_socket_table("127.0.0.1"));
    BOOST_TEST(all[1].port == 22);
    BOOST_TEST(all[1].is_wildcard);
    BOOST_TEST(listening_sockets("").empty());
    BOOST_TEST(in_socket_table("::1") == "00000000000000000000000001000000");
    BOOST_TEST(in_socket_table("fe80::1%eth0") == "000080FE000000000000000001000000");
    BOOST_TEST(in_socket_table("eth0").empty());
}

BOOST_AUTO_TEST_CASE(a_unit_of_systemd)
{
    const unit_facts u =
        parse_unit("verbenad.service",
                   "ExecStart={ path=/usr/bin/verbenad ; argv[]=/usr/bin/verbenad serve /etc/v.toml ; "
                   "ignore_errors=no ; "
                   "pid=0 }\n"
                   "LimitNOFILE=1048576\nLimitMEMLOCK=infinity\nUser=files\nStateDirectory=verbena other\n"
                   "CapabilityBoundingSet=cap_chown cap_dac_read_search cap_setuid cap_unheard_of\n"
                   "AmbientCapabilities=\nRequiresMountsFor=/srv/a /srv/b\nLoadState=loaded\nnothing\n");
    BOOST_TEST(u.is_loaded);
    BOOST_TEST((u.command == std::vector<std::string>{"/usr/bin/verbenad", "serve", "/etc/v.toml"}));
    BOOST_TEST(u.descriptors == 1048576U);
    BOOST_TEST(u.locked_memory == no_limit);
    BOOST_TEST(u.user == "files");
    BOOST_TEST(u.state_directory == "verbena");
    BOOST_TEST(u.bounding == (1U << CAP_CHOWN | 1U << CAP_DAC_READ_SEARCH | 1U << CAP_SETUID));
    BOOST_TEST(u.ambient == 0U);
    BOOST_TEST((u.mounts_wanted == std::vector<std::string>{"/srv/a", "/srv/b"}));
    const unit_facts none = parse_unit("verbenad.service", "LoadState=not-found\nExecStart=\n");
    BOOST_TEST(!none.is_loaded);
    BOOST_TEST(none.command.empty());
}

BOOST_AUTO_TEST_CASE(limits_and_mounts)
{
    const std::string limits =
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            1024                 524288               files     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n";
    BOOST_TEST(limit_in(limits, "Max open files") == 1024U);
    BOOST_TEST(limit_in(limits, "Max locked memory") == no_limit);
    BOOST_TEST(limit_in(limits, "Max cpu time") == 0U);
    const std::string mounts = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
                               "30 22 8:17 / /srv/disk rw - xfs /dev/sdb1 rw\nshort 1 8:1\n";
    BOOST_TEST(mounted_at(mounts, "8:17") == "/srv/disk");
    BOOST_TEST(mounted_at(mounts, "8:1").empty());
}

BOOST_AUTO_TEST_CASE(users_of_a_block_device)
{
    const std::string swaps = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
                              "/dev/sdb2                               partition\t975868\t\t0\t\t-2\n";
    BOOST_TEST(is_swap(swaps, "/dev/sdb2"));
    BOOST_TEST(!is_swap(swaps, "/dev/sdb"));
    BOOST_TEST(!is_swap("", "/dev/sdb2"));
    BOOST_TEST(is_open_to_write("pos:\t0\nflags:\t0100002\nmnt_id:\t22\n"));
    BOOST_TEST(is_open_to_write("flags:\t01\n"));
    BOOST_TEST(!is_open_to_write("pos:\t2\nflags:\t02100000\nino:\t1\n"));
    BOOST_TEST(!is_open_to_write("flags:\n"));
    BOOST_TEST(!is_open_to_write(""));
}

BOOST_AUTO_TEST_CASE(the_largest_packet_is_found)
{
    for (const std::uint32_t limit : {576U, 577U, 1500U, 8999U, 9000U}) {
        int asked = 0;
        BOOST_TEST(largest_that(576, 9000, [&](std::uint32_t size) {
                       ++asked;
                       return size <= limit;
                   }) == limit);
        BOOST_TEST(asked <= 16);
    }
    BOOST_TEST(largest_that(576, 9000, [](std::uint32_t) { return false; }) == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
