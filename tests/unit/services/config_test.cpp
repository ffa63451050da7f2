// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <daemon/config.hpp>
#include <daemon/config_file.hpp>

#include <verbena/protocols/nfs/exports.hpp>

#include <cstdlib>
#include <string>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(config_test)

using namespace verbena::daemon;

namespace {

template<class F>
std::string complaint(F f)
{
    try {
        f();
    } catch (const config_error& e) {
        return e.what();
    }
    return {};
}

bool parse_complains(const char* text, const char* part)
{
    const std::string said = complaint([&] { (void)parse_config(text, "f.toml"); });
    BOOST_TEST_INFO_SCOPE(said);
    return said.find(part) != std::string::npos;
}

bool complete_complains(config c, const char* part)
{
    const std::string said = complaint([&] { complete(c); });
    BOOST_TEST_INFO_SCOPE(said);
    return said.find(part) != std::string::npos;
}

config with_exports(std::initializer_list<std::pair<const char*, const char*>> exports)
{
    config c;
    for (const auto& [directory, pseudo] : exports) {
        export_config e;
        e.directory = directory;
        e.pseudo = pseudo;
        c.exports.push_back(e);
    }
    return c;
}

} // namespace

BOOST_AUTO_TEST_CASE(every_key_is_read)
{
    const config c = parse_config(R"(
[daemon]
state = "/var/lib/x"
shards = 3
policy = "event"
spin_microseconds = 20
pin = true
memory_mib = 128
blocking_threads = 4
drain_seconds = 2
log_level = "debug"

[memory]
huge_pages = "no"

[metrics]
listen = "off"

[nfs]
listen = ["tcp://[::1]:2049"]
rpcbind = "no"
allow_public = true
rdma_read_seconds = 7
iwarp_crc = true

[[nfs.export]]
directory = "/srv/a"
pseudo = "/a"
clients = ["10.0.0.0/8", "*"]
transports = ["tcp"]
read_only = true
root_squash = false
all_squash = true
anonuid = 1
anongid = 2
secure = true
crossmnt = true
async = true
handles = "path"

[[nfs.export]]
pseudo = "/scratch"
backend = "memfs"
)",
                                  "f.toml");
    BOOST_TEST(c.state == "/var/lib/x");
    BOOST_TEST(c.shards.value() == 3U);
    BOOST_TEST((c.policy == verbena::wait_policy::event));
    BOOST_TEST(c.spin_microseconds == 20U);
    BOOST_TEST(c.pin);
    BOOST_TEST(c.memory_mib == 128U);
    BOOST_TEST(c.blocking_threads == 4U);
    BOOST_TEST(c.drain_seconds == 2U);
    BOOST_TEST((c.log_level == verbena::log_level::debug));
    BOOST_TEST((c.huge_pages == verbena::huge_pages::no));
    BOOST_TEST(c.metrics == "off");
    BOOST_TEST(c.listen.at(0) == "tcp://[::1]:2049");
    BOOST_TEST((c.rpcbind == rpcbind_mode::no));
    BOOST_TEST(c.allow_public);
    BOOST_TEST(c.rdma_read_seconds == 7U);
    BOOST_TEST(c.iwarp_crc);
    BOOST_REQUIRE(c.exports.size() == 2U);
    const export_config& a = c.exports[0];
    BOOST_TEST(a.directory == "/srv/a");
    BOOST_TEST(a.pseudo == "/a");
    BOOST_TEST((a.clients == std::vector<std::string>{"10.0.0.0/8", "*"}));
    BOOST_TEST((a.transports == std::vector<std::string>{"tcp"}));
    BOOST_TEST((a.read_only && !a.root_squash && a.all_squash && a.secure && a.crossmnt && a.async));
    BOOST_TEST(a.handles == "path");
    BOOST_TEST(a.anonuid == 1U);
    BOOST_TEST(a.anongid == 2U);
    BOOST_TEST(c.exports[1].backend == "memfs");
}

BOOST_AUTO_TEST_CASE(what_is_not_known_is_an_error_with_its_place_and_a_suggestion)
{
    BOOST_TEST(
        parse_complains("[nfs]\nlisen = []\n", "f.toml:2:1: unknown key nfs.lisen; did you mean listen?"));
    BOOST_TEST(parse_complains("[deamon]\n", "unknown key deamon; did you mean daemon?"));
    BOOST_TEST(parse_complains("shards = 1\n", "unknown key shards"));
    BOOST_TEST(parse_complains("[[nfs.export]]\nread-only = true\n",
                               "nfs.export.read-only; did you mean read_only?"));
    BOOST_TEST(parse_complains("[nfs]\nqqqqqqqq = 1\n",
                               "known: listen rpcbind allow_public rdma_read_seconds iwarp_crc export"));
}

BOOST_AUTO_TEST_CASE(values_of_another_type_or_range_are_refused)
{
    BOOST_TEST(parse_complains("[daemon]\nshards = \"2\"\n", "daemon.shards must be a number from 1 to 256"));
    BOOST_TEST(parse_complains("[daemon]\nshards = -1\n", "daemon.shards must be a number"));
    BOOST_TEST(parse_complains("[daemon]\nshards = 0\n", "daemon.shards must be a number from 1 to 256"));
    BOOST_TEST(parse_complains("[daemon]\ndrain_seconds = -1\n",
                               "f.toml:2:17: daemon.drain_seconds must be a number from 0 to 3600"));
    BOOST_TEST(parse_complains("[daemon]\ndrain_seconds = 3601\n",
                               "daemon.drain_seconds must be a number from 0 to 3600"));
    BOOST_TEST(parse_complains("[daemon]\nspin_microseconds = 1000001\n", "a number from 0 to 1000000"));
    BOOST_TEST(parse_complains("[daemon]\nmemory_mib = 63\n", "a number from 64 to 1048576"));
    BOOST_TEST(parse_complains("[daemon]\nblocking_threads = 0\n", "a number from 1 to 256"));
    BOOST_TEST(parse_complains("[nfs]\nrdma_read_seconds = 0\n", "a number from 1 to 3600"));
    BOOST_TEST(parse_complains("[[nfs.export]]\nanonuid = 4294967295\n", "a number from 0 to 4294967294"));
    BOOST_TEST(parse_complains("[daemon]\nshards = 257\n", "daemon.shards must be a number from 1 to 256"));
    BOOST_TEST(parse_complains("[daemon]\nshards = 4294967296\n", "daemon.shards must be a number"));
    BOOST_TEST(parse_complains("[daemon]\npin = 1\n", "daemon.pin must be true or false"));
    BOOST_TEST(parse_complains("[daemon]\npolicy = \"fast\"\n", "daemon.policy must be \"busy\""));
    BOOST_TEST(parse_complains("[daemon]\nlog_level = \"loud\"\n", "daemon.log_level must be"));
    BOOST_TEST(parse_complains("[memory]\nhuge_pages = \"yes\"\n", "memory.huge_pages must be \"auto\" or"));
    BOOST_TEST(parse_complains("[nfs]\nlisten = \"tcp://x\"\n", "nfs.listen must be a list of strings"));
    BOOST_TEST(parse_complains("[nfs]\nlisten = [1]\n", "nfs.listen must be a string"));
    BOOST_TEST(parse_complains("[nfs]\nrpcbind = true\n", "nfs.rpcbind must be a string"));
    BOOST_TEST(
        parse_complains("[nfs.export]\npseudo = \"/a\"\n", "a list of tables, written [[nfs.export]]"));
    BOOST_TEST(parse_complains("nfs = 1\n", "nfs must be a table"));
    BOOST_TEST(parse_complains("[[nfs.export]]\npseudo = \"/a\\u0000\"\n", "NUL"));
    BOOST_TEST(parse_complains("[nfs\n", "f.toml:1:"));
    BOOST_TEST(parse_complains("[nfs]\n[nfs]\n", "f.toml:2:"));
}

BOOST_AUTO_TEST_CASE(the_effective_config_reads_back_as_itself)
{
    config c = with_exports({{"/srv/\"q\\", ""}, {"/srv/b", "/b"}});
    c.exports[1].clients = {"*"};
    c.exports[1].read_only = true;
    c.state = "/tmp/s";
    c.policy = verbena::wait_policy::busy;
    complete(c);
    const std::string text = to_toml(c);
    config again = parse_config(text, "again");
    complete(again);
    BOOST_TEST(to_toml(again) == text);
    BOOST_TEST((again.exports == c.exports));
    BOOST_TEST((again.listen == c.listen));
    BOOST_TEST(text.find("policy = 'busy'") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_is_left_out_is_filled_in)
{
    config c = with_exports({{"rel/../data/", ""}});
    c.state = "/tmp/s";
    complete(c);
    BOOST_TEST(c.exports[0].pseudo == "/export");
    BOOST_TEST(c.exports[0].directory.ends_with("/data"));
    BOOST_TEST(c.exports[0].directory.front() == '/');
    BOOST_TEST((c.listen == std::vector<std::string>{"iwarp://127.0.0.1:20049", "tcp://127.0.0.1:2049"}));
    BOOST_TEST(c.metrics == "127.0.0.1:9464");
    BOOST_TEST(c.shards.value() >= 1U);
}

BOOST_AUTO_TEST_CASE(only_the_first_export_may_do_without_a_pseudo_path)
{
    BOOST_TEST(complete_complains(with_exports({{"/srv/a", ""}, {"/srv/b", ""}}), "write /srv/b:/b"));
    BOOST_TEST(complete_complains(with_exports({{"/srv/a", "/a"}, {"/srv/b", ""}}), "write /srv/b:/b"));
    BOOST_TEST(complete_complains(with_exports({{"/srv/a", ""}, {"/srv/b", "/export"}}), "is taken"));
    BOOST_TEST(complete_complains(with_exports({}), "--export DIR"));
    BOOST_TEST(complete_complains(with_exports({{"", "/a"}}), "needs a directory"));
}

BOOST_AUTO_TEST_CASE(pseudo_paths_are_plain)
{
    for (const char* bad : {"a", "/a/", "//a", "/a//b", "/./a", "/a/..", "/../a"})
        BOOST_TEST(complete_complains(with_exports({{"/srv/a", bad}}), "pseudo-path"));
    const std::string longest = "/" + std::string(1023, 'a');
    config c = with_exports({{"/srv/a", longest.c_str()}, {"/srv/b", "/"}, {"/srv/c", "/..a/b."}});
    c.state = "/tmp/s";
    BOOST_CHECK_NO_THROW(complete(c));
    BOOST_TEST(complete_complains(with_exports({{"/srv/a", (longest + "a").c_str()}}), "longer than 1024"));
}

BOOST_AUTO_TEST_CASE(what_cannot_work_is_told_with_its_place_in_the_file)
{
    const auto said = [](const char* text) {
        return complaint([text] {
            config c = parse_config(text, "f.toml");
            c.state = "/tmp/s";
            complete(c);
        });
    };
    const char* listen = "[nfs]\nlisten = [\"tcp://127.0.0.1:1\",\n  \"tcp://127.0.0.1:99999\"]\n"
                         "[[nfs.export]]\ndirectory = \"/a\"\n";
    BOOST_TEST(said(listen).starts_with("f.toml:3:3: listen tcp://127.0.0.1:99999: "));
    const char* twice = "[nfs]\nlisten = [\"tcp://127.0.0.1:1\", \"iwarp://127.0.0.1:1\"]\n"
                        "[[nfs.export]]\ndirectory = \"/a\"\n";
    BOOST_TEST(said(twice).starts_with("f.toml:2:32: listen iwarp://127.0.0.1:1: "));
    const char* exported = "[[nfs.export]]\ndirectory = \"/a\"\n[[nfs.export]]\ndirectory = \"/b\"\n";
    BOOST_TEST(said(exported).starts_with("f.toml:3:1: export of /b needs a pseudo-path"));
    const char* metrics = "[metrics]\nlisten = \"here\"\n[[nfs.export]]\ndirectory = \"/a\"\n";
    BOOST_TEST(said(metrics).starts_with("f.toml:2:10: metrics here: "));
}

BOOST_AUTO_TEST_CASE(names_of_back_ends_and_transports_are_checked)
{
    config c = with_exports({{"/srv/a", ""}});
    c.exports[0].backend = "posixf";
    BOOST_TEST(complete_complains(c, "did you mean posixfs?"));
    c.exports[0].backend = "posixfs";
    c.exports[0].transports = {"iwrap"};
    BOOST_TEST(complete_complains(c, "did you mean iwarp?"));
    c.exports[0].transports = {};
    c.exports[0].handles = "kernal";
    BOOST_TEST(complete_complains(c, "did you mean kernel?"));
}

BOOST_AUTO_TEST_CASE(memfs_takes_no_directory_and_no_options_of_directories)
{
    config c = with_exports({{"/srv/a", "/a"}});
    c.exports[0].backend = "memfs";
    BOOST_TEST(complete_complains(c, "leave out /srv/a"));
    c.exports[0].directory.clear();
    c.state = "/tmp/s";
    BOOST_CHECK_NO_THROW(complete(c));
    const auto complains = [&c](auto change, const char* part) {
        config bad = c;
        change(bad.exports[0]);
        return complete_complains(bad, part);
    };
    BOOST_TEST(complains([](export_config& e) { e.crossmnt = true; }, "leave out crossmnt"));
    BOOST_TEST(complains([](export_config& e) { e.async = true; }, "leave out async"));
    BOOST_TEST(complains([](export_config& e) { e.handles = "kernel"; }, "leave out handles=kernel"));
}

BOOST_AUTO_TEST_CASE(clients_are_addresses_and_prefixes)
{
    config c = with_exports({{"/srv/a", ""}});
    c.state = "/tmp/s";
    for (const char* bad : {"10.0.0.0/40", "10.0.0.1/8", "2001:db8::/129", "host", ""}) {
        c.exports[0].clients = {"*", bad};
        BOOST_TEST(complete_complains(c, "write an address, a prefix as 10.0.0.0/8, or *"), bad);
    }
    BOOST_TEST(complete_complains(c, "export of /srv/a: clients="));
    c.exports[0].clients = {"10.0.0.0/8", "2001:db8::/32"};
    BOOST_CHECK_NO_THROW(complete(c));
    BOOST_TEST((clients_of(c.exports[0]).texts() == c.exports[0].clients));
}

BOOST_AUTO_TEST_CASE(metrics_are_served_over_ipv4)
{
    const auto said = [](const char* address) {
        config c = with_exports({{"/srv/a", ""}});
        c.state = "/tmp/s";
        c.metrics = address;
        return complaint([&] { complete(c); });
    };
    BOOST_TEST(said("[::1]:9464").find("over IPv4 only; write 127.0.0.1:9464 or") != std::string::npos);
    BOOST_TEST(said("[2001:db8::1]:7").find("over IPv4 only; write 127.0.0.1:7 or") != std::string::npos);
    BOOST_TEST(said("[::]:9464").find("over IPv4 only; write 0.0.0.0:9464 or") != std::string::npos);
    BOOST_TEST(said("[::ffff:127.0.0.1]:9464").find("over IPv4 only") != std::string::npos);
    for (const char* good : {"0.0.0.0:9464", "localhost:9464", "off"})
        BOOST_TEST(said(good) == "");
}

BOOST_AUTO_TEST_CASE(listen_urls_have_a_known_scheme_a_host_and_a_port)
{
    BOOST_TEST((parse_listen_url("tcp://127.0.0.1:7") == listen_url{"tcp", "127.0.0.1", 7}));
    BOOST_TEST(parse_listen_url("tcp://localhost").port == 2049U);
    BOOST_TEST(parse_listen_url("iwarp://localhost").port == 20049U);
    BOOST_TEST(parse_listen_url("iwarp://[::1]:0").port == 0U);
    BOOST_TEST(parse_listen_url("iwarp://[2001:db8::1]:20049/").text() == "iwarp://[2001:db8::1]:20049");
    for (const char* bad : {"127.0.0.1:2049", "tcp:/127.0.0.1", "tpc://127.0.0.1:1", "tcp://", "tcp://:7",
                            "tcp://h:65536", "tcp://h:x", "tcp://h:1:2", "tcp://[::1", "tcp://h:-1"})
        BOOST_CHECK_THROW((void)parse_listen_url(bad), config_error);
}

BOOST_AUTO_TEST_CASE(a_listener_by_rdma_may_name_its_device)
{
    const listen_url url = parse_listen_url("rdma://192.0.2.1:20049?device=mlx5_0:2");
    BOOST_TEST(url.address() == "192.0.2.1:20049");
    BOOST_TEST(url.device.name == "mlx5_0");
    BOOST_TEST(url.device.port == 2U);
    BOOST_TEST(url.text() == "rdma://192.0.2.1:20049?device=mlx5_0:2");
    BOOST_TEST(parse_listen_url("rdma://*/?device=rxe0").text() == "rdma://*:20049?device=rxe0");
    BOOST_TEST(parse_listen_url("rdma://[::1]:0?device=rxe0").port == 0U);
    const auto said = [](const char* text) { return complaint([text] { (void)parse_listen_url(text); }); };
    for (const char* bad : {"rdma://192.0.2.1?device=", "rdma://192.0.2.1?device=rxe0:0",
                            "rdma://192.0.2.1?device=rxe0:x", "rdma://192.0.2.1?device=rxe0:1:1",
                            "rdma://192.0.2.1?device=:1", "rdma://192.0.2.1?device=rxe0&port=1"})
        BOOST_TEST((said(bad).find("device must be NAME or NAME:PORT") != std::string::npos), said(bad));
    BOOST_TEST((said("rdma://192.0.2.1?dev=rxe0").find("must be device=NAME") != std::string::npos));
    BOOST_TEST(
        (said("iwarp://192.0.2.1?device=rxe0").find("only rdma:// chooses a device") != std::string::npos));
    // It stays in the effective configuration.
    config c = with_exports({{"/srv/a", ""}});
    c.listen = {"rdma://192.0.2.1?device=rxe0"};
    complete(c);
    BOOST_TEST(c.listen.at(0) == "rdma://192.0.2.1:20049?device=rxe0");
    BOOST_TEST(parse_config(to_toml(c), "again").listen.at(0) == c.listen.at(0));
}

BOOST_AUTO_TEST_CASE(what_can_be_done_is_asked_of_the_device_that_all_listeners_name)
{
    using verbena::device_choice;
    const std::string a = "rdma://192.0.2.1?device=rxe0:1";
    BOOST_TEST((common_device({"tcp://*", a}) == device_choice{"rxe0", 1}));
    BOOST_TEST((common_device({a, "rdma://192.0.2.2?device=rxe0:2"}) == device_choice{"rxe0", 0}));
    BOOST_TEST((common_device({a, "rdma://192.0.2.2?device=siw0"}) == device_choice{}));
    BOOST_TEST((common_device({a, "rdma://192.0.2.2"}) == device_choice{}));
    BOOST_TEST((common_device({"tcp://*", "rdma://192.0.2.2"}) == device_choice{}));
}

BOOST_AUTO_TEST_CASE(two_listeners_cannot_share_an_address)
{
    config c = with_exports({{"/srv/a", ""}});
    c.listen = {"tcp://127.0.0.1:20049", "iwarp://127.0.0.1"};
    BOOST_TEST(complete_complains(c, "stands twice"));
    c.listen = {"tcp://127.0.0.1:0", "iwarp://127.0.0.1:0"};
    c.state = "/tmp/s";
    BOOST_CHECK_NO_THROW(complete(c));
}

BOOST_AUTO_TEST_CASE(numbers_have_limits)
{
    config c = with_exports({{"/srv/a", ""}});
    c.shards = 257;
    BOOST_TEST(complete_complains(c, "shards: must be a number from 1 to 256, not 257"));
    c.shards = 1;
    c.memory_mib = 1;
    BOOST_TEST(complete_complains(c, "memory_mib"));
    c.memory_mib = 64;
    c.shards = 17;
    BOOST_TEST(complete_complains(c, "memory_mib: 17 shards need at least 68"));
    c.shards = 16;
    BOOST_CHECK_NO_THROW(complete(c));
    c.exports[0].anonuid = 4294967295U;
    BOOST_TEST(complete_complains(c, "anonuid: must be a number from 0 to 4294967294, not 4294967295"));
    c.exports[0].anonuid = 0;
    c.memory_mib = 512;
    c.blocking_threads = 0;
    BOOST_TEST(complete_complains(c, "blocking_threads"));
    c.blocking_threads = 1;
    c.rdma_read_seconds = 0;
    BOOST_TEST(complete_complains(c, "rdma_read_seconds: must be a number from 1 to 3600, not 0"));
    c.rdma_read_seconds = 30;
    c.metrics = "nonsense:port";
    BOOST_TEST(complete_complains(c, "a numeric IPv4 address with a port"));
    c.metrics = "nonsense";
    BOOST_TEST(complete_complains(c, "a numeric IPv4 address with a port"));
}

BOOST_AUTO_TEST_CASE(the_state_directory_is_where_the_user_keeps_state)
{
    config c = with_exports({{"/srv/a", ""}});
    ::setenv("XDG_STATE_HOME", "/tmp/xdg", 1);
    complete(c);
    BOOST_TEST((c.state == "/var/lib/verbena" || c.state == "/tmp/xdg/verbena"));
}

BOOST_AUTO_TEST_CASE(files_are_read_strictly_too)
{
    BOOST_TEST(complaint([] { (void)load_config("/nonexistent/f.toml"); }).find("can't be opened") !=
               std::string::npos);
    char name[] = "/tmp/verbena-config-XXXXXX";
    const int fd = ::mkstemp(name);
    BOOST_REQUIRE(fd >= 0);
    const std::string text = "[nfs]\nallow_public = true\n";
    BOOST_TEST(::write(fd, text.data(), text.size()) == ssize_t(text.size()));
    const auto read_it = [&] { return load_config(name); };
    BOOST_TEST(read_it().allow_public);
    // Longer than any configuration: a comment without an end.
    BOOST_TEST(::ftruncate(fd, off_t(max_config_size) + 1) == 0);
    BOOST_TEST(complaint([&] { (void)read_it(); }).find("larger than 4 MiB") != std::string::npos);
    ::close(fd);
    ::unlink(name);
}

BOOST_AUTO_TEST_CASE(lists_have_their_limits)
{
    config c;
    c.exports.resize(4097);
    BOOST_TEST(complete_complains(c, "more than 4096 exports"));
    c = with_exports({{"/a", "/a"}});
    c.listen.assign(65, "tcp://127.0.0.1:0");
    BOOST_TEST(complete_complains(c, "more than 64 listeners"));
    BOOST_TEST(parse_complains("[nfs]\nexport = [1]\n", "a list of tables"));
    BOOST_TEST(parse_complains("[nfs]\nrpcbind = \"perhaps\"\n", "\"auto\" or \"no\""));
}

BOOST_AUTO_TEST_SUITE_END()
