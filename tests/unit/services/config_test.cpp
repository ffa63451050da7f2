// SPDX-License-Identifier: Apache-2.0
// What a configuration file says becomes settings of a service and its modules, or an error with its place and cure.
#include <boost/test/unit_test.hpp>

#include <verbena/services/config_file.hpp>

#include <verbena/plugins/modules.hpp>
#include <verbena/services/service.hpp>

#include <cstdlib>
#include <string>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(config_test)

using namespace verbena;

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

// A service with the bundled modules, told what `text` says.
class told {
public:
    explicit told(const std::string& text)
    {
        for (const module_descriptor* m :
             {&modules::memfs, &modules::mount, &modules::nfs, &modules::posixfs})
            service_.modules().add(*m);
        service_.configure(parse_config(text, "f.toml"));
    }
    const setting_values& all() const { return service_.effective(); }
    const setting_values& daemon() const { return all().table("daemon"); }
    const setting_values& nfs() const { return all().table("nfs"); }
    const setting_values& exported(std::size_t i) const { return nfs().tables("export").at(i); }

private:
    service service_;
};

std::string said(const std::string& text)
{
    return complaint([&] { const told t(text); });
}

bool complains(const std::string& text, const char* part)
{
    const std::string what = said(text);
    BOOST_TEST_INFO_SCOPE(what);
    return what.find(part) != std::string::npos;
}

const std::string state = "[daemon]\nstate = \"/tmp/s\"\n";
const std::string one_export = "[[nfs.export]]\ndirectory = \"/srv/a\"\n";

std::string export_with(const std::string& keys) { return state + one_export + keys + '\n'; }

std::string exports(std::initializer_list<std::pair<const char*, const char*>> all)
{
    std::string text = state;
    for (const auto& [directory, pseudo] : all) {
        text += "[[nfs.export]]\n";
        if (*directory != '\0')
            text += std::string("directory = \"") + directory + "\"\n";
        if (*pseudo != '\0')
            text += std::string("pseudo = \"") + pseudo + "\"\n";
    }
    return text;
}

} // namespace

BOOST_AUTO_TEST_CASE(every_key_is_read)
{
    const told c(R"(
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
)");
    BOOST_TEST(c.daemon().text("state") == "/var/lib/x");
    BOOST_TEST(c.daemon().number("shards") == 3U);
    BOOST_TEST(c.daemon().text("policy") == "event");
    BOOST_TEST(c.daemon().number("spin_microseconds") == 20U);
    BOOST_TEST(c.daemon().flag("pin"));
    BOOST_TEST(c.daemon().number("memory_mib") == 128U);
    BOOST_TEST(c.daemon().number("blocking_threads") == 4U);
    BOOST_TEST(c.daemon().number("drain_seconds") == 2U);
    BOOST_TEST(c.daemon().text("log_level") == "debug");
    BOOST_TEST(c.all().table("memory").text("huge_pages") == "no");
    BOOST_TEST(c.all().table("metrics").text("listen") == "off");
    BOOST_TEST(c.nfs().list("listen").at(0) == "tcp://[::1]:2049");
    BOOST_TEST(c.nfs().text("rpcbind") == "no");
    BOOST_TEST(c.nfs().flag("allow_public"));
    BOOST_TEST(c.nfs().number("rdma_read_seconds") == 7U);
    BOOST_TEST(c.nfs().flag("iwarp_crc"));
    BOOST_REQUIRE(c.nfs().tables("export").size() == 2U);
    const setting_values& a = c.exported(0);
    BOOST_TEST(a.text("directory") == "/srv/a");
    BOOST_TEST(a.text("pseudo") == "/a");
    BOOST_TEST((a.list("clients") == std::vector<std::string>{"10.0.0.0/8", "*"}));
    BOOST_TEST((a.list("transports") == std::vector<std::string>{"tcp"}));
    for (const char* flag : {"read_only", "all_squash", "secure", "crossmnt", "async"})
        BOOST_TEST(a.flag(flag), flag);
    BOOST_TEST(!a.flag("root_squash"));
    BOOST_TEST(a.text("handles") == "path");
    BOOST_TEST(a.number("anonuid") == 1U);
    BOOST_TEST(a.number("anongid") == 2U);
    BOOST_TEST(c.exported(1).text("backend") == "memfs");
}

BOOST_AUTO_TEST_CASE(what_is_not_known_is_an_error_with_its_place_and_a_suggestion)
{
    BOOST_TEST(complains("[nfs]\nlisen = []\n", "f.toml:2:1: unknown key nfs.lisen; did you mean listen?"));
    BOOST_TEST(complains("[deamon]\n", "unknown key deamon; did you mean daemon?"));
    BOOST_TEST(complains("shards = 1\n", "unknown key shards"));
    BOOST_TEST(
        complains("[[nfs.export]]\nread-only = true\n", "nfs.export.read-only; did you mean read_only?"));
    BOOST_TEST(complains("[nfs]\nqqqqqqqq = 1\n",
                         "known: listen rdma_read_seconds iwarp_crc rpcbind versions lease grace id_domain "
                         "user_names manage_gids allow_public export "
                         "limits"));
    BOOST_TEST(complains("[mount]\nexport = 1\n", "unknown key mount.export"));
    BOOST_TEST(
        complains("[nfs]\nid_domain = \"a@b\"\n" + one_export, "f.toml:2:13: id_domain: a@b is no domain"));
    BOOST_TEST(said(export_with("\"\" = \"x\"")).starts_with("f.toml:5:1: unknown key nfs.export.; known: "));
    BOOST_TEST(said(export_with("nonsense = 1"))
                   .starts_with("f.toml:5:1: unknown key nfs.export.nonsense; known: "));
    const std::string filter = "[[nfs.export.filter]]\nname = \"none\"\n";
    BOOST_TEST(said(state + one_export + filter)
                   .starts_with("f.toml:5:1: export of /srv/a: no filter none; there is none"));
}

BOOST_AUTO_TEST_CASE(values_of_another_type_or_range_are_refused)
{
    BOOST_TEST(complains("[daemon]\nshards = \"2\"\n", "daemon.shards must be a number from 1 to 256"));
    BOOST_TEST(complains("[daemon]\nshards = -1\n", "daemon.shards must be a number from 1 to 256, not -1"));
    BOOST_TEST(complains("[daemon]\nshards = 0\n", "daemon.shards must be a number from 1 to 256"));
    BOOST_TEST(complains("[daemon]\ndrain_seconds = -1\n",
                         "f.toml:2:17: daemon.drain_seconds must be a number from 0 to 3600"));
    BOOST_TEST(complains("[daemon]\ndrain_seconds = 3601\n",
                         "daemon.drain_seconds must be a number from 0 to 3600"));
    BOOST_TEST(complains("[daemon]\nspin_microseconds = 1000001\n", "a number from 0 to 1000000"));
    BOOST_TEST(complains("[daemon]\nmemory_mib = 63\n", "a number from 64 to 1048576"));
    BOOST_TEST(complains("[daemon]\nblocking_threads = 0\n", "a number from 1 to 256"));
    BOOST_TEST(complains("[nfs]\nrdma_read_seconds = 0\n", "a number from 1 to 3600"));
    BOOST_TEST(complains("[[nfs.export]]\nanonuid = 4294967295\n", "a number from 0 to 4294967294"));
    BOOST_TEST(complains("[daemon]\nshards = 257\n", "daemon.shards must be a number from 1 to 256"));
    BOOST_TEST(complains("[daemon]\nshards = 4294967296\n", "daemon.shards must be a number"));
    BOOST_TEST(complains("[daemon]\npin = 1\n", "daemon.pin must be true or false"));
    BOOST_TEST(complains("[daemon]\npin = 1.5\n", "daemon.pin must be true or false"));
    BOOST_TEST(complains("[daemon]\npolicy = \"fast\"\n",
                         "daemon.policy must be \"busy\", \"adaptive\" or \"event\", not \"fast\""));
    BOOST_TEST(complains("[daemon]\nlog_level = \"loud\"\n", "daemon.log_level must be"));
    BOOST_TEST(complains("[memory]\nhuge_pages = \"yes\"\n", "memory.huge_pages must be \"auto\" or"));
    BOOST_TEST(complains("[nfs]\nlisten = \"tcp://x\"\n", "nfs.listen must be a list of strings"));
    BOOST_TEST(complains("[nfs]\nlisten = [1]\n", "nfs.listen must be a list of strings"));
    BOOST_TEST(complains("[nfs]\nlisten = []\n", "f.toml:2:10: listen is empty"));
    BOOST_TEST(complains("[nfs]\nrpcbind = true\n", "nfs.rpcbind must be a string"));
    BOOST_TEST(complains("[nfs]\nrpcbind = \"perhaps\"\n", "\"auto\" or \"no\""));
    BOOST_TEST(complains("[nfs.export]\npseudo = \"/a\"\n", "a list of tables, written [[nfs.export]]"));
    BOOST_TEST(complains("[nfs]\nexport = [1]\n", "a list of tables"));
    BOOST_TEST(complains("[[nfs]]\n", "nfs must be a table"));
    BOOST_TEST(complains("nfs = 1\n", "nfs must be a table"));
    BOOST_TEST(complains("[[nfs.export]]\npseudo = \"/a\\u0000\"\n", "NUL"));
    BOOST_TEST(complains("[nfs]\nlisten = [\"\\u0000\"]\n", "NUL"));
    BOOST_TEST(complains("[nfs\n", "f.toml:1:"));
    BOOST_TEST(complains("[nfs]\n[nfs]\n", "f.toml:2:"));
    BOOST_TEST(
        complains("a" + std::string(".a", 2) + ".a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = 1\n", "deeper than"));
}

BOOST_AUTO_TEST_CASE(the_effective_config_reads_back_as_itself)
{
    const told c(
        "[daemon]\nstate = \"/tmp/s\"\npolicy = \"busy\"\n"
        "[[nfs.export]]\ndirectory = '/srv/\"q\\'\n"
        "[[nfs.export]]\ndirectory = \"/srv/b\"\npseudo = \"/b\"\nclients = [\"*\"]\nread_only = true\n"
        "[[nfs.export]]\nbackend = \"memfs\"\npseudo = \"/m\"\n");
    const std::string text = to_toml(c.all());
    const told again(text);
    BOOST_TEST(to_toml(again.all()) == text);
    BOOST_TEST(text.find("policy = 'busy'") != std::string::npos);
    BOOST_TEST(again.exported(0).text("directory") == "/srv/\"q\\");
    BOOST_TEST(again.exported(1).list("clients").at(0) == "*");
}

BOOST_AUTO_TEST_CASE(what_is_left_out_is_filled_in)
{
    const told c(state + "[[nfs.export]]\ndirectory = \"rel/../data/\"\n");
    BOOST_TEST(c.exported(0).text("pseudo") == "/export");
    BOOST_TEST(c.exported(0).text("directory").ends_with("/data"));
    BOOST_TEST(c.exported(0).text("directory").front() == '/');
    BOOST_TEST((c.nfs().list("listen") ==
                std::vector<std::string>{"iwarp://127.0.0.1:20049", "tcp://127.0.0.1:2049"}));
    BOOST_TEST(c.all().table("metrics").text("listen") == "127.0.0.1:9464");
    BOOST_TEST(c.daemon().number("shards") >= 1U);
}

BOOST_AUTO_TEST_CASE(something_is_served)
{
    BOOST_TEST(complains(state, "nothing is served: write the table of a protocol; there is [nfs]"));
    BOOST_TEST(complains(state + "[mount]\n", "nothing is served"));
    service empty;
    BOOST_TEST(complaint([&] { empty.configure(setting_values()); }).find("load a module") !=
               std::string::npos);
}

BOOST_AUTO_TEST_CASE(only_the_first_export_may_do_without_a_pseudo_path)
{
    BOOST_TEST(complains(exports({{"/srv/a", ""}, {"/srv/b", ""}}), "write /srv/b:/b"));
    BOOST_TEST(complains(exports({{"/srv/a", "/a"}, {"/srv/b", ""}}), "write /srv/b:/b"));
    BOOST_TEST(complains(exports({{"/srv/a", ""}, {"/srv/b", "/export"}}), "is taken"));
    BOOST_TEST(complains(state + "[nfs]\n", "--export DIR"));
    BOOST_TEST(complains(exports({{"", "/a"}}), "needs a directory"));
}

BOOST_AUTO_TEST_CASE(pseudo_paths_are_plain)
{
    for (const char* bad : {"a", "/a/", "//a", "/a//b", "/./a", "/a/..", "/../a"})
        BOOST_TEST(complains(exports({{"/srv/a", bad}}), "pseudo-path"));
    const std::string longest = "/" + std::string(1023, 'a');
    BOOST_TEST(said(exports({{"/srv/a", longest.c_str()}, {"/srv/b", "/"}, {"/srv/c", "/..a/b."}})) == "");
    BOOST_TEST(complains(exports({{"/srv/a", (longest + "a").c_str()}}), "longer than 1024"));
}

BOOST_AUTO_TEST_CASE(what_cannot_work_is_told_with_its_place_in_the_file)
{
    const std::string listen =
        "[nfs]\nlisten = [\"tcp://127.0.0.1:1\",\n  \"tcp://127.0.0.1:99999\"]\n" + one_export;
    BOOST_TEST(said(listen).starts_with("f.toml:3:3: listen tcp://127.0.0.1:99999: "));
    const std::string twice =
        "[nfs]\nlisten = [\"tcp://127.0.0.1:1\", \"iwarp://127.0.0.1:1\"]\n" + one_export;
    BOOST_TEST(said(twice).starts_with("f.toml:2:32: listen iwarp://127.0.0.1:1: "));
    const std::string exported = "[[nfs.export]]\ndirectory = \"/a\"\n[[nfs.export]]\ndirectory = \"/b\"\n";
    BOOST_TEST(said(exported).starts_with("f.toml:3:1: export of /b needs a pseudo-path"));
    const std::string metrics = "[metrics]\nlisten = \"here\"\n" + one_export;
    BOOST_TEST(said(metrics).starts_with("f.toml:2:10: metrics here: "));
}

BOOST_AUTO_TEST_CASE(names_of_back_ends_and_transports_are_checked)
{
    BOOST_TEST(complains(export_with("backend = \"posixf\""), "no back end posixf; did you mean posixfs?"));
    BOOST_TEST(complains(export_with("backend = \"nfs\""), "no back end nfs"));
    BOOST_TEST(complains(export_with("transports = [\"iwrap\"]"), "did you mean iwarp?"));
    BOOST_TEST(complains(export_with("handles = \"kernal\""), "did you mean kernel?"));
}

BOOST_AUTO_TEST_CASE(a_back_end_takes_its_own_settings_alone)
{
    const auto memfs = [](const std::string& keys) {
        return state + "[[nfs.export]]\nbackend = \"memfs\"\npseudo = \"/m\"\n" + keys + '\n';
    };
    BOOST_TEST(said(memfs("")) == "");
    for (const char* key :
         {"directory = \"/srv/a\"", "crossmnt = true", "async = true", "handles = \"kernel\""})
        BOOST_TEST(complains(memfs(key), "is a setting of the back end posixfs, not of memfs: leave out"),
                   key);
    BOOST_TEST(complains(memfs("nonsense = 1"), "f.toml:6:1: unknown key nfs.export.nonsense"));
    const told c(memfs(""));
    BOOST_TEST((c.exported(0).find("handles") == nullptr));
    BOOST_TEST(!c.exported(0).flag("snapshots"));
    BOOST_TEST(c.exported(0).number("snapshots_max") == 64u);
    BOOST_TEST(c.exported(0).number("snapshot_files") == 100'000u);
    const told taken(memfs("snapshots = true\nsnapshots_max = 3"));
    BOOST_TEST((taken.exported(0).flag("snapshots") && taken.exported(0).number("snapshots_max") == 3u));
    for (const char* bad : {"snapshots_max = 0", "snapshots_max = 1025"})
        BOOST_TEST(complains(memfs(bad), "a number from 1 to 1024"), bad);
    for (const char* bad : {"snapshot_files = 0", "snapshot_files = 1048577"})
        BOOST_TEST(complains(memfs(bad), "a number from 1 to 1048576"), bad);
}

BOOST_AUTO_TEST_CASE(clients_are_addresses_and_prefixes)
{
    for (const char* bad : {"10.0.0.0/40", "10.0.0.1/8", "2001:db8::/129", "host", ""})
        BOOST_TEST(complains(export_with(std::string("clients = [\"*\", \"") + bad + "\"]"),
                             "write an address, a prefix as 10.0.0.0/8, or *"),
                   bad);
    BOOST_TEST(complains(export_with("clients = [\"host\"]"), "export of /srv/a: clients="));
    BOOST_TEST(said(export_with("clients = [\"10.0.0.0/8\", \"2001:db8::/32\"]")) == "");
}

BOOST_AUTO_TEST_CASE(metrics_are_served_at_a_numeric_address)
{
    const auto at = [](const char* address) {
        return said(state + "[metrics]\nlisten = \"" + address + "\"\n" + one_export);
    };
    for (const char* bad : {"nonsense:port", "nonsense", "::1:9464"})
        BOOST_TEST(at(bad).find("a numeric address with a port") != std::string::npos);
    for (const char* good : {"0.0.0.0:9464", "localhost:9464", "[::1]:9464", "[::]:9464", "off"})
        BOOST_TEST(at(good) == "");
}

BOOST_AUTO_TEST_CASE(two_listeners_cannot_share_an_address)
{
    const auto at = [](const std::string& list) {
        return said(state + "[nfs]\nlisten = [" + list + "]\n" + one_export);
    };
    BOOST_TEST(at("\"tcp://127.0.0.1:20049\", \"iwarp://127.0.0.1\"").find("stands twice") !=
               std::string::npos);
    BOOST_TEST(at("\"tcp://127.0.0.1:0\", \"iwarp://127.0.0.1:0\"") == "");
    const told c(state + "[nfs]\nlisten = [\"rdma://192.0.2.1?device=rxe0\"]\n" + one_export);
    BOOST_TEST(c.nfs().list("listen").at(0) == "rdma://192.0.2.1:20049?device=rxe0");
}

BOOST_AUTO_TEST_CASE(shards_and_memory_fit)
{
    const auto with = [](const char* keys) {
        return "[daemon]\nstate = \"/tmp/s\"\n" + std::string(keys) + '\n' + one_export;
    };
    BOOST_TEST(complains(with("memory_mib = 64\nshards = 17"),
                         "f.toml:3:14: memory_mib: 17 shards need at least 68"));
    BOOST_TEST(said(with("memory_mib = 64\nshards = 16")) == "");
}

BOOST_AUTO_TEST_CASE(the_state_directory_is_where_the_user_keeps_state)
{
    ::setenv("XDG_STATE_HOME", "/tmp/xdg", 1);
    const told c(one_export);
    const std::string& where = c.daemon().text("state");
    BOOST_TEST((where == "/var/lib/verbena" || where == "/tmp/xdg/verbena"));
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
    BOOST_TEST(read_it().table("nfs").flag("allow_public"));
    // Longer than any configuration: a comment without an end.
    BOOST_TEST(::ftruncate(fd, off_t(max_config_size) + 1) == 0);
    BOOST_TEST(complaint([&] { (void)read_it(); }).find("larger than 4 MiB") != std::string::npos);
    ::close(fd);
    ::unlink(name);
}

BOOST_AUTO_TEST_CASE(limits_of_version_4_are_checked)
{
    const auto with = [](const std::string& limits) {
        return state + one_export + "[nfs.limits]\n" + limits;
    };
    const told c(with("opens = 5000\nopens_per_client = 500\nslot_memory_mib = 32\npeer_percent = 50\n"));
    const setting_values& limits = c.nfs().table("limits");
    BOOST_TEST(limits.number("opens") == 5000u);
    BOOST_TEST(limits.number("opens_per_client") == 500u);
    BOOST_TEST(limits.number("clients") == 16384u);
    BOOST_TEST(complains(with("opens = 99\n"), "nfs.limits.opens must be a number from 100 to"));
    BOOST_TEST(
        complains(with("peer_percent = 101\n"), "nfs.limits.peer_percent must be a number from 1 to 100"));
    BOOST_TEST(complains(with("open = 100\n"), "unknown key nfs.limits.open; did you mean opens?"));
    BOOST_TEST(complains("[nfs]\nlimits = 3\n", "nfs.limits must be"));
    BOOST_TEST(
        complains(with("opens = 100\nopens_per_client = 101\n"),
                  "f.toml:7:20: nfs.limits.opens_per_client: 101 is more than opens, which is 100: raise "
                  "opens or lower opens_per_client"));
}

BOOST_AUTO_TEST_CASE(lists_have_their_limits)
{
    std::string many = state;
    for (int i = 0; i < 4097; ++i)
        many += "[[nfs.export]]\n";
    BOOST_TEST(complains(many, "more than 4096 exports"));
    std::string listen;
    for (int i = 0; i < 65; ++i)
        listen += "\"tcp://127.0.0.1:0\",";
    BOOST_TEST(
        complains(state + "[nfs]\nlisten = [" + listen + "]\n" + one_export, "more than 64 listeners"));
    std::string filters = state + one_export;
    for (int i = 0; i < 9; ++i)
        filters += "[[nfs.export.filter]]\nname = \"none\"\n";
    BOOST_TEST(complains(filters, "more than 8 filters"));
}

BOOST_AUTO_TEST_SUITE_END()
