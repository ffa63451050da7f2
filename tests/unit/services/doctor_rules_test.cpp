// SPDX-License-Identifier: Apache-2.0
// What `verbena doctor --config` says of hosts that are made up here.
#include "../../../services/client/doctor/rules.hpp"
#include "../checks.hpp"

#include <verbena/services/config_file.hpp>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <linux/capability.h>
#include <string>
#include <string_view>
#include <utility>

BOOST_AUTO_TEST_SUITE(doctor_rules_test)

namespace {

using namespace verbena;
using namespace verbena::cli;

constexpr const char* text = R"([daemon]
state = "state"
memory_mib = 512

[nfs]
listen = ["tcp://10.0.0.5:2049",
          "rdma://10.0.0.5:20049?device=mlx5_0"]

[[nfs.export]]
directory = "/srv/data"
pseudo = "/data"
mountpoint = true

[block]
listen = ["iwarp://*:1234"]

[[block.device]]
name = "vm"
path = "/srv/vm.img"
size = "1M"
)";

wanted_host wanted(const std::string& more = {})
{
    const setting_values all = parse_config(text + more, "c.toml");
    return what_is_wanted(all, all, "c.toml", "/run");
}

// A host that is well, for that file.
host_facts good()
{
    host_facts h;
    h.process.whose = "verbenad.service";
    h.process.unit = "verbenad.service";
    h.process.capabilities = ~std::uint64_t(0);
    h.process.descriptors = 1048576;
    h.process.locked_memory = no_limit;
    h.process.mounts_wanted = {"/srv/data"};
    folder_facts& f = h.folders.emplace_back();
    f.is_directory = f.is_mounted = true;
    f.file_system = "ext4";
    f.handles = 0;
    f.bytes = 1000;
    f.free_bytes = 500;
    device_facts& d = h.devices.emplace_back();
    d.kind = node_kind::file;
    d.bytes = 1 << 20;
    h.state.emplace();
    h.state->is_directory = true;
    h.state->mode = 0700;
    h.state->file_system = "ext4";
    h.state->sync_failed = 0;
    h.listeners.resize(3);
    h.listeners[0].addresses = h.listeners[1].addresses = {"10.0.0.5"};
    h.listeners[2].addresses = {"0.0.0.0", "::"};
    h.has_rdma = true;
    rdma_port_facts& p = h.rdma.emplace_back();
    p.device = "mlx5_0";
    p.port = 1;
    p.is_ethernet = p.is_active = true;
    p.state = "active";
    p.mtu = 4096;
    p.gids = {{2, "RoCE v1", "eth0", {"10.0.0.5"}}, {3, "RoCE v2", "eth0", {"10.0.0.5"}}};
    h.interface_mtus = {{"eth0", 9000}};
    return h;
}

finding none() { return {"none", verdict::good, ""}; }

// The first of this check that is not good, or else the first of it.
finding seen(const std::vector<finding>& all, std::string_view check)
{
    finding first = none();
    for (const finding& f : all) {
        if (f.check != check)
            continue;
        if (f.result != verdict::good)
            return f;
        if (first.check == "none")
            first = f;
    }
    return first;
}

finding of(const host_facts& h, std::string_view check, const std::string& more = {})
{
    return seen(judge(wanted(more), h), check);
}

bool says(const finding& f, verdict how, std::string_view part, std::string_view cure = {})
{
    const bool good = f.result == how && f.text.find(part) != std::string::npos &&
                      f.cure.find(cure) != std::string::npos && (how == verdict::good || !f.cure.empty());
    if (!good)
        BOOST_TEST_MESSAGE(f.check << ": " << f.text << " / " << f.cure);
    return good;
}

} // namespace

BOOST_AUTO_TEST_CASE(what_a_configuration_asks_for_has_its_places)
{
    const wanted_host w = wanted();
    BOOST_TEST(w.state == "/run/state");
    BOOST_TEST(w.state_is.place == "c.toml:2");
    BOOST_TEST(w.recovers);
    BOOST_REQUIRE(w.listeners.size() == 3U);
    BOOST_TEST(w.listeners[0].url_is.place == "c.toml:15"); // tables by name
    BOOST_TEST(w.listeners[0].host == "*");
    BOOST_TEST(w.listeners[2].url_is.place == "c.toml:7");
    BOOST_TEST(w.listeners[2].url_is.name == "nfs.listen");
    BOOST_TEST(w.listeners[2].text() == "rdma://10.0.0.5:20049?device=mlx5_0");
    BOOST_REQUIRE(w.exports.size() == 1U);
    BOOST_TEST(w.exports[0].mount_at == "/srv/data");
    BOOST_TEST(w.exports[0].mount_is.place == "c.toml:12");
    BOOST_TEST(w.exports[0].handles_are.place == "c.toml:9"); // its table, as nobody wrote it
    BOOST_REQUIRE(w.devices.size() == 1U);
    BOOST_TEST(w.devices[0].size.value_or(0) == 1048576U);
    BOOST_TEST(w.devices[0].size_is.place == "c.toml:20");
    // Defaults that verbenad has completed stand nowhere.
    const setting_values nothing = parse_config("", "c.toml");
    const wanted_host d = what_is_wanted(parse_config(text, "x"), nothing, "c.toml", "/");
    BOOST_TEST(d.exports.at(0).directory_is.place == "c.toml");
}

BOOST_AUTO_TEST_CASE(what_needs_nothing_of_the_host_is_left_out)
{
    const setting_values all = parse_config("[nfs]\nversions = [\"3\"]\nlisten = [\"tcp://127.0.0.1:0\", 7]\n"
                                            "[[nfs.export]]\nbackend = \"memfs\"\npseudo = \"/m\"\n"
                                            "[[block.device]]\nbackend = \"ramblk\"\nname = \"r\"\n",
                                            "c.toml");
    const wanted_host w = what_is_wanted(all, all, "c.toml", "/");
    BOOST_TEST(w.exports.empty());
    BOOST_TEST(w.devices.empty());
    BOOST_TEST(w.listeners.empty()); // a list of something else
    BOOST_TEST(!w.recovers);
}

BOOST_AUTO_TEST_CASE(a_host_that_is_well_has_no_problem)
{
    wanted_host w = wanted();
    std::ranges::rotate(w.listeners, w.listeners.begin() + 1); // as good() has them
    for (const finding& f : judge(w, good()))
        BOOST_TEST((f.result == verdict::good), f.check + ": " + f.text);
}

BOOST_AUTO_TEST_CASE(folders)
{
    const auto with = [](auto change) {
        host_facts h = good();
        change(h.folders[0], h);
        return h;
    };
    const std::string name = "export /data";
    finding f = of(with([](folder_facts& d, host_facts&) { d.failed = ENOENT; }), name);
    BOOST_TEST(says(f, verdict::bad, "No such file", "make it"));
    BOOST_TEST(f.setting == "nfs.export.directory");
    BOOST_TEST(f.place == "c.toml:10");
    f = of(with([](folder_facts& d, host_facts&) { d.is_late = true; }), name);
    BOOST_TEST(says(f, verdict::bad, "does not answer"));
    f = of(with([](folder_facts& d, host_facts&) { d.is_mounted = false; }), name);
    BOOST_TEST(says(f, verdict::bad, "nothing is mounted at /srv/data", "mount it"));
    BOOST_TEST(f.place == "c.toml:12");
    BOOST_TEST(says(of(with([](folder_facts& d, host_facts&) { d.is_directory = false; }), name),
                    verdict::bad, "is no directory"));
    BOOST_TEST(says(of(with([](folder_facts& d, host_facts& h) {
                           d.refused = EACCES;
                           h.process.user = "files";
                           h.process.capabilities = 0;
                       }),
                       name),
                    verdict::bad, "user files can't read /srv/data: Permission denied"));
    // It was looked at without these.
    for (const int held : {CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE}) {
        const auto refused = [&, held](int number) {
            return of(with([held, number](folder_facts& d, host_facts& h) {
                          d.refused = number;
                          h.process.capabilities = std::uint64_t(1) << held;
                      }),
                      name);
        };
        BOOST_TEST(says(refused(EACCES), verdict::good, "/srv/data on "));
        BOOST_TEST(says(refused(EIO), verdict::bad, "can't read"));
    }
    BOOST_TEST(says(of(with([](folder_facts& d, host_facts&) { d.is_read_only = true; }), name),
                    verdict::hint, "mounted read-only", "read_only = true"));
    BOOST_TEST(says(of(with([](folder_facts& d, host_facts&) { d.free_bytes = 49; }), "room /data"),
                    verdict::hint, "are free"));
    BOOST_TEST(says(of(with([](folder_facts& d, host_facts&) { d.free_bytes = 0; }), "room /data"),
                    verdict::bad, "are free"));
    BOOST_TEST(says(of(with([](folder_facts& d, host_facts&) {
                           d.files = 100;
                           d.free_files = 4;
                       }),
                       "room /data"),
                    verdict::hint, "4 of 100 files"));
    BOOST_TEST(of(with([](folder_facts& d, host_facts&) { d.free_bytes = 50; }), "room /data").check ==
               "none");
    BOOST_TEST(says(of(with([](folder_facts& d, host_facts&) {
                           d.handles = EOPNOTSUPP;
                           d.file_system = "overlayfs";
                       }),
                       "handles /data"),
                    verdict::hint, "overlayfs gives no file handles"));
    BOOST_TEST(says(of(with([](folder_facts&, host_facts& h) {
                           h.process.capabilities &= ~(std::uint64_t(1) << CAP_DAC_READ_SEARCH);
                       }),
                       "handles /data"),
                    verdict::hint, "no CAP_DAC_READ_SEARCH"));
    BOOST_TEST(says(
        of(with([](folder_facts&, host_facts& h) { h.process.mounts_wanted = {"/srv/database"}; }), "unit"),
        verdict::hint, "RequiresMountsFor=/srv/data", "systemctl edit verbenad.service"));
    BOOST_TEST(
        of(with([](folder_facts&, host_facts& h) { h.process.mounts_wanted = {"/srv/data/in/it"}; }), "unit")
            .check == "none");
}

BOOST_AUTO_TEST_CASE(block_devices)
{
    const auto with = [](auto change) {
        host_facts h = good();
        change(h.devices[0], h);
        return of(h, "device vm");
    };
    BOOST_TEST(says(with([](device_facts& d, host_facts&) { d.failed = ENOENT; }), verdict::good,
                    "verbenad makes it with 1.0 MiB"));
    BOOST_TEST(says(with([](device_facts& d, host_facts&) {
                        d.failed = d.folder_failed = ENOENT;
                        d.folder = "/srv";
                    }),
                    verdict::bad, "can't be made: /srv: No such file"));
    const finding size = with([](device_facts& d, host_facts&) { d.bytes = 4096; });
    BOOST_TEST(says(size, verdict::bad, "4096 bytes, and not the 1048576"));
    BOOST_TEST(size.place == "c.toml:20");
    BOOST_TEST(says(with([](device_facts& d, host_facts&) { d.kind = node_kind::other; }), verdict::bad,
                    "neither a file nor"));
    // To read all is not to write all.
    for (const auto& [held, how] :
         {std::pair(CAP_CHOWN, verdict::bad), std::pair(CAP_DAC_READ_SEARCH, verdict::bad),
          std::pair(CAP_DAC_OVERRIDE, verdict::good)}) {
        const auto refused = [&with, held = held](bool is_there) {
            return with([held, is_there](device_facts& d, host_facts& h) {
                h.process.capabilities = std::uint64_t(1) << held;
                if (is_there) {
                    d.refused = EACCES;
                    return;
                }
                d.failed = ENOENT;
                d.folder_failed = EACCES;
            });
        };
        BOOST_TEST(says(refused(true), how, how == verdict::bad ? "can't write" : "/srv/vm.img"));
        BOOST_TEST(says(refused(false), how, how == verdict::bad ? "can't be made" : "verbenad makes it"));
    }
    BOOST_TEST(
        says(with([](device_facts& d, host_facts&) { d.refused = EROFS; }), verdict::bad, "can't write"));
    BOOST_TEST(says(with([](device_facts& d, host_facts&) { d.mounted_at = "/mnt"; }), verdict::bad,
                    "mounted at /mnt"));
    BOOST_TEST(
        says(with([](device_facts& d, host_facts&) { d.holders = {"dm-0"}; }), verdict::bad, "part of dm-0"));
    BOOST_TEST(says(with([](device_facts& d, host_facts& h) {
                        d.holders = {"swap"};
                        h.process.daemons = {12};
                    }),
                    verdict::bad, "part of swap"));
    BOOST_TEST(
        says(with([](device_facts& d, host_facts&) { d.locked_by = 77; }), verdict::bad, "process 77"));
    // What the daemon of this file has is as it should be; another process's lock is not.
    BOOST_TEST(says(with([](device_facts& d, host_facts& h) {
                        d.locked_by = -1;
                        h.process.daemons = {12};
                    }),
                    verdict::good, "which verbenad has open"));
    BOOST_TEST(says(with([](device_facts& d, host_facts& h) {
                        d.locked_by = 77;
                        h.process.daemons = {12};
                    }),
                    verdict::bad, "process 77"));
    BOOST_TEST(says(with([](device_facts& d, host_facts&) { d.logical_block = 4096; }), verdict::hint,
                    "blocks of 4096", "block_size = 4096"));
}

BOOST_AUTO_TEST_CASE(the_state_folder)
{
    const auto with = [](auto change) {
        host_facts h = good();
        change(*h.state, h);
        return of(h, "state");
    };
    const finding owner = with([](state_facts& s, host_facts&) { s.owner = 7; });
    BOOST_TEST(says(owner, verdict::bad, "belongs to user 7", "chown"));
    BOOST_TEST(owner.place == "c.toml:2");
    BOOST_TEST(says(with([](state_facts& s, host_facts&) { s.mode = 0770; }), verdict::bad,
                    "others may write", "chmod go-w"));
    BOOST_TEST(says(with([](state_facts& s, host_facts&) { s.failed = ENOENT; }), verdict::good, "makes it"));
    BOOST_TEST(says(with([](state_facts& s, host_facts&) {
                        s.failed = ENOENT;
                        s.made_failed = EROFS;
                        s.made_in = "/run";
                    }),
                    verdict::bad, "can't make it in /run: Read-only file system"));
    for (const bool may : {false, true})
        BOOST_TEST(says(with([may](state_facts& s, host_facts& h) {
                            s.failed = ENOENT;
                            s.made_failed = EACCES;
                            h.process.capabilities = std::uint64_t(may) << CAP_DAC_OVERRIDE;
                        }),
                        may ? verdict::good : verdict::bad, may ? "verbenad makes it" : "can't make it"));
    BOOST_TEST(
        says(with([](state_facts& s, host_facts&) { s.sync_failed = EIO; }), verdict::bad, "a sync failed"));
    BOOST_TEST(says(with([](state_facts& s, host_facts&) { s.sync_took = std::chrono::seconds(1); }),
                    verdict::hint, "took 1000 ms"));
    BOOST_TEST(
        says(with([](state_facts& s, host_facts&) { s.is_in_memory = true; }), verdict::hint, "is on ext4"));
    BOOST_TEST(
        says(with([](state_facts& s, host_facts&) { s.is_remote = true; }), verdict::hint, "another host"));
    BOOST_TEST(says(with([](state_facts& s, host_facts&) { s.database_held_by = 77; }), verdict::bad,
                    "held by process 77"));
    BOOST_TEST(says(with([](state_facts& s, host_facts& h) {
                        s.database_held_by = 77;
                        h.process.daemons = {77};
                    }),
                    verdict::good, "whose syncs work"));
}

BOOST_AUTO_TEST_CASE(ports)
{
    const auto with = [](auto change) {
        host_facts h = good();
        change(h.listeners[0], h);
        wanted_host w = wanted();
        std::ranges::rotate(w.listeners, w.listeners.begin() + 1);
        return seen(judge(w, h), "port 2049");
    };
    const auto held = [&](std::vector<port_holder> by, std::vector<pid_t> daemons) {
        return with([&](listener_facts& l, host_facts& h) {
            l.failed = EADDRINUSE;
            l.holders = by;
            h.process.daemons = daemons;
        });
    };
    BOOST_TEST(says(with([](listener_facts&, host_facts&) {}), verdict::good, "free"));
    const finding other = held({{77, "rpc.nfsd"}}, {});
    BOOST_TEST(says(other, verdict::bad, "held by rpc.nfsd (process 77)", "another port"));
    BOOST_TEST(other.place == "c.toml:6");
    BOOST_TEST(says(held({{12, "verbenad"}}, {12}), verdict::good, "verbenad that runs with this file"));
    BOOST_TEST(says(held({{12, "verbenad"}}, {13}), verdict::bad, "held by verbenad (process 12)"));
    // One of several addresses is another one's.
    BOOST_TEST(says(held({{12, "verbenad"}, {77, "x"}}, {12}), verdict::bad, "held by x"));
    BOOST_TEST(says(held({}, {}), verdict::bad, "no verbenad runs", "ss -ltnp"));
    BOOST_TEST(says(held({}, {12}), verdict::hint, "can't see", "ss -ltnp"));
    BOOST_TEST(says(with([](listener_facts& l, host_facts&) {
                        l.failed = EADDRNOTAVAIL;
                        l.address = "10.0.0.5";
                    }),
                    verdict::bad, "no address 10.0.0.5"));
    BOOST_TEST(
        says(with([](listener_facts& l, host_facts&) { l.failed = EACCES; }), verdict::good, "may have it"));
    BOOST_TEST(says(with([](listener_facts& l, host_facts& h) {
                        l.failed = EACCES;
                        h.process.capabilities = 0;
                    }),
                    verdict::bad, "below 1024", "CAP_NET_BIND_SERVICE"));
    BOOST_TEST(says(with([](listener_facts& l, host_facts&) { l.unresolved = "no such name"; }), verdict::bad,
                    "no such"));
    BOOST_TEST(says(with([](listener_facts& l, host_facts&) { l.is_late = true; }), verdict::bad, "in time"));
}

BOOST_AUTO_TEST_CASE(limits_of_the_process)
{
    const auto with = [](auto change, const char* check) {
        host_facts h = good();
        wanted_host w = wanted();
        change(h.process, w);
        return seen(judge(w, h), check);
    };
    BOOST_TEST(says(with([](process_facts& p, wanted_host&) { p.descriptors = 1024; }, "descriptors"),
                    verdict::hint, "connections may have 384", "LimitNOFILE=65536"));
    const finding few = with(
        [](process_facts& p, wanted_host& w) {
            p.descriptors = 8000;
            w.connections = 3001;
        },
        "descriptors");
    BOOST_TEST(says(few, verdict::bad, "3000 and not 3001", "LimitNOFILE=8008"));
    BOOST_TEST(few.setting == "daemon.connections");
    BOOST_TEST(says(with(
                        [](process_facts& p, wanted_host& w) {
                            p.descriptors = 8008;
                            w.connections = 3001;
                        },
                        "descriptors"),
                    verdict::good, "3003"));
    const finding memory = with(
        [](process_facts& p, wanted_host&) {
            p.locked_memory = (512U << 20) - 1;
            p.capabilities = 0;
        },
        "memlock");
    BOOST_TEST(says(memory, verdict::bad, "512.0 MiB", "LimitMEMLOCK=infinity"));
    BOOST_TEST(memory.place == "c.toml:3");
    BOOST_TEST(says(with([](process_facts& p, wanted_host&) { p.locked_memory = 512U << 20; }, "memlock"),
                    verdict::good, "512.0 MiB"));
    BOOST_TEST(says(with([](process_facts& p, wanted_host&) { p.locked_memory = 0; }, "memlock"),
                    verdict::good, "CAP_IPC_LOCK"));
    // siw of older kernels exempts nobody.
    BOOST_TEST((with(
                    [](process_facts& p, wanted_host&) {
                        p.locked_memory = 0;
                        p.has_rnic = true;
                    },
                    "memlock")
                    .result == verdict::bad));
    BOOST_TEST(says(with(
                        [](process_facts& p, wanted_host& w) {
                            p.locked_memory = 0;
                            p.capabilities = 0;
                            std::erase_if(w.listeners,
                                          [](const wanted_listener& l) { return l.scheme == "rdma"; });
                        },
                        "memlock"),
                    verdict::good, "no rdma://"));
    BOOST_TEST(says(with([](process_facts& p, wanted_host&) { p.capabilities = 0; }, "rights"), verdict::hint,
                    "CAP_SETUID", "all callers have that user's rights"));
}

BOOST_AUTO_TEST_CASE(devices_of_rdma)
{
    const auto with = [](auto change, const char* check) {
        host_facts h = good();
        change(h.rdma[0], h);
        wanted_host w = wanted();
        std::ranges::rotate(w.listeners, w.listeners.begin() + 1);
        return seen(judge(w, h), check);
    };
    const finding other = with([](rdma_port_facts& p, host_facts&) { p.device = "mlx5_1"; }, "RDMA");
    BOOST_TEST(says(other, verdict::bad, "leads to mlx5_1 port 1", "?device="));
    BOOST_TEST(other.place == "c.toml:7");
    BOOST_TEST(says(with([](rdma_port_facts& p, host_facts&) { p.gids.clear(); }, "RDMA"), verdict::bad,
                    "no RDMA device has the address 10.0.0.5"));
    BOOST_TEST(says(with(
                        [](rdma_port_facts& p, host_facts&) {
                            p.is_active = false;
                            p.state = "down";
                        },
                        "RDMA"),
                    verdict::bad, "is down", "ip link set eth0 up"));
    BOOST_TEST(says(with([](rdma_port_facts& p, host_facts&) { p.gids.pop_back(); }, "GID"), verdict::bad,
                    "no RoCE v2"));
    BOOST_TEST(says(with([](rdma_port_facts& p, host_facts&) { p.preferred = "RoCE v1"; }, "GID"),
                    verdict::hint, "RoCE v1 of its own accord", "default_roce_mode"));
    BOOST_TEST(says(with([](rdma_port_facts&, host_facts&) {}, "GID"), verdict::good, "GID 3 RoCE v2"));
    BOOST_TEST(says(with(
                        [](rdma_port_facts& p, host_facts& h) {
                            p.mtu = 1024;
                            h.interface_mtus["eth0"] = 1500;
                        },
                        "MTU"),
                    verdict::hint, "1024 on eth0 with 1500", "4200"));
    BOOST_TEST(says(with([](rdma_port_facts& p, host_facts&) { p.mtu = 1024; }, "MTU"), verdict::hint, "1024",
                    "set lower"));
    BOOST_TEST(says(with([](rdma_port_facts&, host_facts& h) { h.interface_mtus["eth0"] = 1500; }, "MTU"),
                    verdict::bad, "room for 1024"));
    BOOST_TEST(says(with([](rdma_port_facts&, host_facts& h) { h.has_rdma = false; }, "RDMA"), verdict::hint,
                    "sees no RDMA devices"));
    // The kernel's own figures.
    BOOST_TEST(roce_mtu(1500) == 1024U);
    BOOST_TEST(roce_mtu(4191) == 2048U);
    BOOST_TEST(roce_mtu(4192) == 4096U);
    BOOST_TEST(roce_mtu(65535) == 4096U);
    BOOST_TEST(roce_mtu(300) == 0U);
}

BOOST_AUTO_TEST_CASE(the_way_to_a_peer)
{
    const auto with = [](auto change, const char* check) {
        host_facts h = good();
        route_facts& r = h.route.emplace();
        r.peer = "10.0.0.9";
        r.source = "10.0.0.5";
        r.interface = "eth0";
        r.mtu = r.passes = 9000;
        change(r, h);
        wanted_host w = wanted();
        std::ranges::rotate(w.listeners, w.listeners.begin() + 1);
        return seen(judge(w, h), check);
    };
    BOOST_TEST(says(with([](route_facts&, host_facts&) {}, "path MTU"), verdict::good, "get there"));
    BOOST_TEST(says(with([](route_facts&, host_facts&) {}, "path MTU back"), verdict::good, "come whole"));
    BOOST_TEST(says(with([](route_facts&, host_facts&) {}, "GID by route"), verdict::good, "RoCE v2"));
    BOOST_TEST(says(with([](route_facts& r, host_facts&) { r.passes = 1500; }, "path MTU"), verdict::bad,
                    "more than 1500 bytes", "mtu 1500"));
    BOOST_TEST(says(with([](route_facts& r, host_facts&) { r.comes_back = 1500; }, "path MTU back"),
                    verdict::bad, "pieces of 1500 bytes"));
    BOOST_TEST(says(with([](route_facts& r, host_facts&) { r.passes = 0; }, "path MTU"), verdict::hint,
                    "not known", "ICMP"));
    BOOST_TEST(says(with([](route_facts& r, host_facts&) { r.failed = "Network is unreachable"; }, "route"),
                    verdict::bad, "unreachable"));
    BOOST_TEST(says(with([](route_facts& r, host_facts&) { r.source = "192.168.1.2"; }, "GID by route"),
                    verdict::bad, "which is of no RDMA device"));
    BOOST_TEST(says(with(
                        [](route_facts& r, host_facts& h) {
                            h.rdma[0].gids.push_back({5, "RoCE v2", "eth0", {"10.0.0.6"}});
                            r.source = "10.0.0.6";
                        },
                        "GID by route"),
                    verdict::hint, "no rdma:// listener"));
    // Without a peer that is told, and nobody is to blame.
    BOOST_TEST(says(of(good(), "path MTU"), verdict::good, "--peer"));
}

BOOST_AUTO_TEST_SUITE_END()
