// SPDX-License-Identifier: Apache-2.0
// A service of a program's own: its programs on every shard, over TCP and iWARP, its metrics, its end.
#include <boost/test/unit_test.hpp>

#include <service/control_server.hpp>
#include <service/side_by_side.hpp>

#include <verbena/services/service.hpp>

#include <verbena/core/net/ip_address.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/verbs/side_connections.hpp>
#include <verbena/protocols/rpc/module.hpp>
#include <verbena/protocols/rpcstream/record_marking.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <poll.h>
#include <semaphore>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(service_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t number = 0x20000042;

class null_program final : public rpc::program {
public:
    explicit null_program(std::atomic<int>& alive) : alive_(alive) { ++alive_; }
    ~null_program() override { --alive_; }
    std::uint32_t number() const noexcept override { return service_test::number; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "null"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "NULL"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call&) override { co_return rpc::outcome::success; }

private:
    std::atomic<int>& alive_;
};

void quiet(service& s)
{
    s.set("daemon.shards", 2);
    s.set("daemon.log_level", "off");
    s.set("daemon.state", "/tmp");
    s.set("metrics.listen", "off");
}

std::string complaint(service& s)
{
    try {
        s.configure();
    } catch (const config_error& e) {
        return e.what();
    }
    return {};
}

// "listening at tcp://127.0.0.1:PORT" of the start text.
net::endpoint place_of(const std::string& text, const std::string& transport)
{
    const std::string begin = "listening at " + transport + "://";
    const std::size_t at = text.find(begin);
    BOOST_REQUIRE(at != std::string::npos);
    return net::endpoint::parse(text.substr(at + begin.size(), text.find('\n', at) - at - begin.size()))
        .value();
}

// Whether a NULL call is answered there, over TCP.
bool answers(const net::endpoint& where)
{
    const net::unique_fd fd(::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), where.data(), where.size()) != 0)
        return false;
    std::array<std::byte, 256> message{};
    const std::span<std::byte> body = std::span(message).subspan(rpc::fragment_header_size);
    xdr::encoder out(body);
    rpc::call_header header;
    header.xid = 7;
    header.program = number;
    header.version = 1;
    rpc::encode(out, header);
    rpc::encode_fragment_header(std::span(message).first<rpc::fragment_header_size>(),
                                {static_cast<std::uint32_t>(out.size()), true});
    const std::size_t size = rpc::fragment_header_size + out.size();
    std::array<std::byte, 28> reply{};
    return ::send(fd.get(), message.data(), size, MSG_NOSIGNAL) == static_cast<ssize_t>(size) &&
           ::recv(fd.get(), reply.data(), reply.size(), MSG_WAITALL) == static_cast<ssize_t>(reply.size()) &&
           reply[7] == std::byte{7};
}

} // namespace

BOOST_AUTO_TEST_CASE(programs_of_its_own_are_served_on_every_shard)
{
    std::atomic<int> alive{0};
    {
        service s("test", "1");
        s.serve("null", {"tcp://127.0.0.1:0", "iwarp://127.0.0.1:0"}, [&](shard&) {
            std::vector<std::unique_ptr<rpc::program>> programs;
            programs.push_back(std::make_unique<null_program>(alive));
            return programs;
        });
        quiet(s);
        s.configure();
        s.start();
        BOOST_TEST(alive == 2);
        BOOST_TEST(s.start_text().find("test 1: 2 shards") == 0U);
        (void)place_of(s.start_text(), "iwarp");
        const net::endpoint where = place_of(s.start_text(), "tcp");
        BOOST_TEST(answers(where));
        double calls = 0;
        for (const metric_snapshot& m : s.metrics().collect()) {
            for (const auto& sample : m.samples) {
                if (m.family.name == "verbena_rpc_calls_total" && sample.labels.front() == "null")
                    calls += sample.value;
            }
        }
        BOOST_TEST(calls == 1);
        BOOST_TEST(s.stop().has_value());
        BOOST_TEST(alive == 0);
        BOOST_TEST(!answers(where));
        BOOST_TEST(s.stop().has_value());
        BOOST_TEST(s.unfinished().empty());
        BOOST_CHECK_THROW(s.start(), std::logic_error);
    }
    BOOST_TEST(alive == 0);
}

// The hooks of a store that all programs share: it is there before them and goes after them, while shards run.
BOOST_AUTO_TEST_CASE(what_lives_across_the_shards_outlives_their_programs)
{
    std::atomic<int> alive{0};
    std::vector<std::string> said;
    service s("test", "1");
    BOOST_CHECK_THROW((void)s.shards(), std::logic_error);
    for (const char* name : {"first", "second"}) {
        s.across_shards(
            [&said, &alive, name](runtime& rt) {
                const unsigned where = rt.call(1, [](shard& at) { return unsigned(at.index()); });
                said.push_back(std::string(name) + " opens " + std::to_string(where) + std::to_string(alive));
            },
            [&said, &alive, &s, name](runtime& rt) {
                BOOST_TEST((&rt == &s.shards()));
                const unsigned where = rt.call(1, [](shard& at) { return unsigned(at.index()); });
                said.push_back(std::string(name) + " closes " + std::to_string(where) +
                               std::to_string(alive));
                throw std::runtime_error("of a hook"); // costs the others nothing
            },
            [&said, &alive, &s, name](runtime& rt) {
                BOOST_TEST((&rt == &s.shards()));
                const bool open = answers(place_of(s.start_text(), "tcp"));
                said.push_back(std::string(name) + " drains " + std::to_string(open) + std::to_string(alive));
                throw std::runtime_error("of a hook");
            });
    }
    s.serve("null", {"tcp://127.0.0.1:0"}, [&](shard&) {
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<null_program>(alive));
        return programs;
    });
    quiet(s);
    s.configure();
    s.start();
    BOOST_TEST(alive == 2);
    BOOST_TEST(answers(place_of(s.start_text(), "tcp")));
    BOOST_TEST(s.stop().has_value());
    const std::vector<std::string> expected{"first opens 10",  "second opens 10",  "second drains 12",
                                            "first drains 12", "second closes 10", "first closes 10"};
    BOOST_TEST(said == expected, boost::test_tools::per_element());
    BOOST_CHECK_THROW(s.across_shards({}, {}), std::logic_error);
    BOOST_CHECK_THROW((void)s.shards(), std::logic_error);
}

BOOST_AUTO_TEST_CASE(what_goes_in_clear_beyond_this_host_is_told)
{
    std::atomic<int> alive{0};
    service s("test", "1");
    s.serve("null", {"tcp://0.0.0.0:0", "tcp://127.0.0.1:0", "iwarp://[::]:0"}, [&](shard&) {
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<null_program>(alive));
        return programs;
    });
    quiet(s);
    s.configure();
    s.start();
    const std::string& text = s.start_text();
    const std::size_t at = text.find("not encrypted, and callers are who they say they are:");
    BOOST_REQUIRE(at != std::string::npos);
    const std::string line = text.substr(at, text.find('\n', at) - at);
    BOOST_TEST(line.find("tcp://0.0.0.0:") != std::string::npos);
    BOOST_TEST(line.find("iwarp://[::]:") != std::string::npos);
    BOOST_TEST(line.find("127.0.0.1") == std::string::npos);

    // The page of metrics is no less open.
    service pages("test", "1");
    pages.serve("null", {"tcp://127.0.0.1:0"}, [&](shard&) {
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<null_program>(alive));
        return programs;
    });
    quiet(pages);
    pages.set("metrics.listen", std::string("0.0.0.0:0"));
    pages.configure();
    pages.start();
    const std::string& told = pages.start_text();
    const std::size_t there =
        told.find("not encrypted, and callers are who they say they are: http://0.0.0.0:");
    BOOST_TEST(there != std::string::npos);
    BOOST_TEST(told.find("/metrics; let only a network that you trust reach that", there) !=
               std::string::npos);

    service within("test", "1");
    within.serve("null", {"tcp://127.0.0.1:0", "tcp://[::1]:0"}, [&](shard&) {
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<null_program>(alive));
        return programs;
    });
    quiet(within);
    within.set("metrics.listen", std::string("127.0.0.1:0"));
    within.configure();
    within.start();
    BOOST_TEST(within.start_text().find("not encrypted") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(an_operators_command_ends_before_anything_is_taken_down)
{
    if (!services::has_control_server())
        return;
    const std::string path = "/tmp/verbena_service_test." + std::to_string(::getpid()) + ".control";
    std::atomic<bool> begun{false}, ended{false};
    std::atomic<int> alive{0};
    service s("test", "1");
    control_command toil;
    toil.name = "toil";
    toil.work = [&](const control_arguments&, const std::stop_token& stop) {
        begun = true;
        begun.notify_all();
        std::binary_semaphore asked(0);
        const std::stop_callback ask(stop, [&] { asked.release(); });
        asked.acquire();
        ended = true;
        return control_answer();
    };
    s.add_command(std::move(toil));
    bool ended_before = false, gone_before = false;
    s.across_shards({}, {}, [&](runtime&) {
        ended_before = ended;
        gone_before = ::access(path.c_str(), F_OK) != 0;
    });
    s.serve("null", {"tcp://127.0.0.1:0"}, [&](shard&) {
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<null_program>(alive));
        return programs;
    });
    quiet(s);
    s.set("daemon.control", path);
    s.configure();
    s.start();
    const net::unique_fd operators(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    path.copy(where.sun_path, sizeof where.sun_path - 1);
    BOOST_REQUIRE(::connect(operators.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0);
    const std::string_view request = "{\"version\":1,\"command\":\"toil\"}\n";
    BOOST_REQUIRE(::send(operators.get(), request.data(), request.size(), MSG_NOSIGNAL) ==
                  ssize_t(request.size()));
    begun.wait(false);
    BOOST_TEST(s.stop().has_value());
    BOOST_TEST(ended_before);
    BOOST_TEST(gone_before);
    ::unlink((path + ".lock").c_str());
}

BOOST_AUTO_TEST_CASE(a_hook_may_throw_anything)
{
    std::vector<std::string> said;
    service s("test", "1");
    s.across_shards([](runtime&) { throw 1; }, [&](runtime&) { said.emplace_back("closed"); });
    s.serve("null", {"tcp://127.0.0.1:0"},
            [](shard&) { return std::vector<std::unique_ptr<rpc::program>>(); });
    quiet(s);
    s.configure();
    BOOST_CHECK_EXCEPTION(s.start(), int, [](int thrown) { return thrown == 1; });
    BOOST_TEST(said.size() == 1U);
    BOOST_CHECK_THROW((void)s.shards(), std::logic_error);
}

BOOST_AUTO_TEST_CASE(a_hook_that_throws_ends_the_start_and_what_began_before_it)
{
    std::vector<std::string> said;
    std::atomic<int> alive{0};
    service s("test", "1");
    s.across_shards({}, [&](runtime&) { said.emplace_back("first"); });
    const auto drains = [&](runtime&) { said.emplace_back("drains"); };
    s.across_shards([](runtime&) { throw std::runtime_error("no store"); },
                    [&](runtime&) { said.emplace_back("second"); }, drains);
    s.across_shards({}, [&](runtime&) { said.emplace_back("third"); }, drains);
    s.serve("null", {"tcp://127.0.0.1:0"}, [&](shard&) {
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<null_program>(alive));
        return programs;
    });
    quiet(s);
    s.configure();
    BOOST_CHECK_EXCEPTION(s.start(), std::runtime_error,
                          [](const std::runtime_error& e) { return std::string(e.what()) == "no store"; });
    const std::vector<std::string> expected{"second", "first"};
    BOOST_TEST(said == expected, boost::test_tools::per_element());
    BOOST_TEST(alive == 0);
}

// A daemon of somebody's own: defaults by set(), then a file, then the command line by set().
BOOST_AUTO_TEST_CASE(a_file_says_what_was_set_before_it_anew)
{
    const std::string path = "/tmp/verbena_service_test." + std::to_string(::getpid()) + ".toml";
    const auto write = [&](const char* text) { std::ofstream(path) << text; };
    const auto with_file = [&](service& s) {
        s.serve("null", {"tcp://127.0.0.1:7000"},
                [](shard&) { return std::vector<std::unique_ptr<rpc::program>>(); },
                {setting::number("start", {0, 100}, 5, "Where it begins"),
                 setting::flag("loud", false, "Tells more")});
        s.set("daemon.shards", 3);
        s.set("daemon.memory_mib", 128);
        s.load(path);
        s.set("daemon.memory_mib", 256);
    };
    write("[daemon]\nshards = 1\nmemory_mib = 64\n[null]\nlisten = [\"tcp://127.0.0.1:0\"]\nstart = 7\n");
    {
        service s("test", "1");
        with_file(s);
        s.configure();
        BOOST_TEST(s.effective().table("daemon").number("shards") == 1U);
        BOOST_TEST(s.effective().table("daemon").number("memory_mib") == 256U);
        BOOST_TEST(s.effective().table("null").number("start") == 7U);
        BOOST_TEST(!s.effective().table("null").flag("loud"));
        BOOST_TEST(s.effective().table("null").list("listen").front() == "tcp://127.0.0.1:0");
    }
    write("[null]\nstart = 700\n");
    {
        service s("test", "1");
        with_file(s);
        const std::string why = complaint(s);
        BOOST_TEST(why.find(path + ":2:") == 0U, why);
    }
    // Somebody who writes the file is told where, whoever came first.
    write("\ndaemon = 3\n");
    const auto says_where = [&](const config_error& e) {
        return std::string(e.what()).starts_with(path + ":2:") &&
               std::string(e.what()).find("write it as [daemon]") != std::string::npos;
    };
    {
        service s("test", "1");
        s.set("daemon.shards", 3);
        BOOST_CHECK_EXCEPTION(s.load(path), config_error, says_where);
        service t("test", "1");
        t.load(path);
        BOOST_CHECK_EXCEPTION(t.set("daemon.shards", 3), config_error, says_where);
    }
    write("[null\n");
    {
        service s("test", "1");
        BOOST_CHECK_THROW(with_file(s), config_error);
    }
    ::unlink(path.c_str());
}

// A module that is loaded is met by tests/embed/run.sh: this program exports nothing to one.
BOOST_AUTO_TEST_CASE(modules_that_a_file_names_are_loaded_or_refused_with_the_place)
{
    const std::string path = "/tmp/verbena_service_test." + std::to_string(::getpid()) + ".toml";
    const auto refusal = [&](const std::string& text) {
        std::ofstream(path) << text;
        service s("test", "1");
        s.serve("null", {"tcp://127.0.0.1:0"},
                [](shard&) { return std::vector<std::unique_ptr<rpc::program>>(); });
        s.load(path);
        return complaint(s);
    };
    const std::string none = refusal("[null]\n\n");
    BOOST_TEST(none == "");
    const std::string missing = refusal("\nmodules = [\"/nonexistent/one.so\"]\n");
    BOOST_TEST(missing.find(path + ":2:") == 0U, missing);
    BOOST_TEST(missing.find("/nonexistent/one.so") != std::string::npos, missing);
    const std::string no_list = refusal("modules = \"one\"\n");
    BOOST_TEST(no_list.find("modules must be a list of strings") != std::string::npos, no_list);
    ::unlink(path.c_str());
    // What set() says is the same.
    service s("test", "1");
    s.set("modules", std::vector<std::string>{"/nonexistent/two.so"});
    const std::string set = complaint(s);
    BOOST_TEST(set.find("/nonexistent/two.so") != std::string::npos, set);
    // And what is given to configure() by itself.
    service given("test", "1");
    setting_values values;
    values.set("modules", {std::vector<std::string>{"/nonexistent/three.so"}});
    std::string told;
    try {
        given.configure(std::move(values));
    } catch (const config_error& e) {
        told = e.what();
    }
    BOOST_TEST(told.find("/nonexistent/three.so") != std::string::npos, told);
}

BOOST_AUTO_TEST_CASE(what_was_started_is_stopped_when_the_rest_fails)
{
    std::atomic<int> alive{0};
    service s("test");
    s.serve("null", {"tcp://127.0.0.1:0"}, [&](shard& at) {
        if (at.index() == 1)
            throw std::runtime_error("no more");
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<null_program>(alive));
        return programs;
    });
    quiet(s);
    s.configure();
    BOOST_CHECK_EXCEPTION(s.start(), std::runtime_error, [](const std::runtime_error& e) {
        return std::string(e.what()) == "module null: no more";
    });
    BOOST_TEST(alive == 0);
}

namespace {

std::vector<std::string> events;

void note(const std::string& event) { events.push_back(event); }

// What another module needs, which is no protocol.
class base_module final : public module {
public:
    ~base_module() override { note("base gone, " + std::to_string(host_->shards().size()) + " shards run"); }
    std::string_view role() const noexcept override { return "base"; }
    void prepare() override { note("base prepare"); }
    void start(module_host& host) override
    {
        host_ = &host;
        BOOST_TEST(!host.uses_rdma_devices());
        note("base start");
    }
    void stop() noexcept override { note("base stop"); }

private:
    module_host* host_ = nullptr;
};

class above_module final : public rpc::program_module {
public:
    ~above_module() override { note("above gone"); }
    std::vector<std::string> default_listeners() const override { return {"tcp://127.0.0.1:0"}; }
    void configure(setting_values&, module_table&) override { note("above configure"); }
    void prepare() override { note("above prepare"); }
    void will_listen(std::span<const listen_target> targets) override
    {
        note("above at " + std::to_string(targets.size()));
    }
    void start(module_host&) override { note("above start"); }
    std::vector<std::unique_ptr<rpc::program>> make_programs(shard&) override
    {
        note("above programs");
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<null_program>(alive_));
        return programs;
    }
    std::string listening(std::span<const listen_place>) override
    {
        note("above listening");
        return {};
    }
    void closing() noexcept override { note("above closing"); }
    void stop() noexcept override { note("above stop"); }

private:
    std::atomic<int> alive_{0};
};

constexpr const char* needs_base[] = {"base", nullptr};
const module_descriptor base = {
    .name = "base", .version = "1", .summary = "for tests", .create = []() -> std::unique_ptr<module> {
        return std::make_unique<base_module>();
    }};
const module_descriptor above = {
    .name = "above",
    .version = "1",
    .summary = "for tests",
    .needs = needs_base,
    .create = []() -> std::unique_ptr<module> { return std::make_unique<above_module>(); }};

// Takes no connection; counts the listeners that it serves.
class waiting_protocol final : public verbs::protocol_module {
public:
    std::vector<std::string> default_listeners() const override { return {"iwarp://127.0.0.1:0"}; }
    void start(module_host& host) override { peers = &host.peers(); }
    bool admits(std::string_view peer_address) override { return peer_address == admitted; }
    task<void> serve(shard&, verbs::context&, verbs::listener& l) override
    {
        ++served;
        for (;;) {
            const auto peer = co_await l.next();
            if (!peer)
                break;
            ++came;
            handshakes = peers->held(peer_use::handshakes); // until it is answered
        }
        ++ended;
    }
    static inline std::string admitted;
    static inline std::atomic<int> came = 0;
    static inline std::atomic<std::size_t> handshakes = 0;
    peer_shares* peers = nullptr;
    static inline std::atomic<int> served = 0;
    static inline std::atomic<int> ended = 0;
};
const module_descriptor waiting = {
    .name = "waiting", .version = "1", .summary = "for tests", .create = []() -> std::unique_ptr<module> {
        return std::make_unique<waiting_protocol>();
    }};

} // namespace

BOOST_AUTO_TEST_CASE(modules_begin_behind_what_they_need_and_end_before_it)
{
    events.clear();
    {
        service s("test");
        s.modules().add(base);
        s.modules().add(above);
        quiet(s);
        s.set("above.iwarp_crc", false); // its table: it is served
        s.configure();
        s.start();
        BOOST_TEST(s.stop().has_value());
    }
    const std::vector<std::string> expected = {"above configure", "base prepare",
                                               "above prepare",   "above at 1",
                                               "base start",      "above start",
                                               "above programs",  "above programs",
                                               "above listening", "above closing",
                                               "above stop",      "base stop",
                                               "above gone",      "base gone, 0 shards run"};
    BOOST_TEST(events == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_verbs_protocol_serves_each_listener_on_each_shard)
{
    service s("test");
    s.modules().add(waiting);
    quiet(s);
    s.set("waiting.listen", std::vector<std::string>{"iwarp://127.0.0.1:0", "iwarp://127.0.0.1:0"});
    s.configure();
    s.start();
    BOOST_TEST(waiting_protocol::served == 4);
    BOOST_TEST(waiting_protocol::ended == 0);
    BOOST_TEST(s.stop().has_value());
    BOOST_TEST(waiting_protocol::ended == 4);

    service t("test");
    t.modules().add(waiting);
    quiet(t);
    t.set("waiting.listen", std::vector<std::string>{"tcp://127.0.0.1:0"});
    BOOST_TEST(complaint(t).find("a byte stream has none of; write iwarp:// or rdma://") !=
               std::string::npos);
}

namespace {

// Rejects all that has private data.
class rejecting final : public verbs::side_connections {
public:
    static constexpr std::array<std::byte, 4> answer{std::byte('g'), std::byte('o'), std::byte('n'),
                                                     std::byte('e')};
    bool takes(std::span<const std::byte> private_data) noexcept override { return !private_data.empty(); }
    task<void> serve(std::unique_ptr<verbs::connect_request> request) override
    {
        ++served;
        auto refusing = request->reject(answer);
        (void)co_await refusing;
    }
    task<void> end() override
    {
        ++ended;
        co_return;
    }
    std::atomic<int> served{0};
    std::atomic<int> ended{0};
};

class beside_module final : public rpc::program_module {
public:
    std::vector<std::string> default_listeners() const override
    {
        return {"tcp://127.0.0.1:0", "iwarp://127.0.0.1:0", "iwarp://127.0.0.1:0"};
    }
    std::vector<std::unique_ptr<rpc::program>> make_programs(shard&) override
    {
        note("programs");
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<null_program>(alive));
        return programs;
    }
    verbs::side_connections* connections_on(verbs::device& device, std::string_view transport) override
    {
        BOOST_TEST(device.make_domain().has_value());
        note("asked of " + std::string(transport));
        if (fails)
            throw std::runtime_error("no more");
        return &others;
    }
    std::string listening(std::span<const listen_place> places) override
    {
        note("listening");
        return protocol_module::listening(places);
    }
    static inline bool fails = false;
    std::atomic<int> alive{0};
    static inline rejecting others;
};
const module_descriptor beside = {
    .name = "beside", .version = "1", .summary = "for tests", .create = []() -> std::unique_ptr<module> {
        return std::make_unique<beside_module>();
    }};

// What an iWARP listener answers to a connect request with these private data (RFC 5044 7.1, RFC 6581 9).
std::string answer_to(const net::endpoint& where, std::string_view private_data)
{
    const net::unique_fd fd(::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), where.data(), where.size()) != 0)
        return "nothing";
    std::string frame = "MPA ID Req Frame";
    constexpr char depths[] = {'\0', '\1', '\0', '\1'}; // IRD, ORD
    frame += {'\x10', '\2', '\0', static_cast<char>(sizeof depths + private_data.size())};
    frame += std::string_view(depths, sizeof depths);
    frame += private_data;
    (void)::send(fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
    std::array<char, 20> header{};
    if (::recv(fd.get(), header.data(), header.size(), MSG_WAITALL) != static_cast<ssize_t>(header.size()))
        return "nothing";
    constexpr char rejected = 0x20;
    std::string told = (header[16] & rejected) != 0 ? "rejected: " : "accepted: ";
    std::string data(static_cast<unsigned char>(header[19]), '\0');
    if (::recv(fd.get(), data.data(), data.size(), MSG_WAITALL) != static_cast<ssize_t>(data.size()) ||
        data.size() < sizeof depths)
        return "nothing";
    return told + data.substr(sizeof depths);
}

} // namespace

BOOST_AUTO_TEST_CASE(a_module_has_connections_that_are_not_for_rpc)
{
    events.clear();
    beside_module::others.served = beside_module::others.ended = 0;
    service s("test");
    s.modules().add(beside);
    quiet(s);
    s.set("beside.iwarp_crc", false);
    s.configure();
    s.start();
    // Asked once for a transport, before anybody can call.
    const std::vector<std::string> expected = {"programs", "programs", "asked of iwarp", "listening"};
    BOOST_TEST(events == expected, boost::test_tools::per_element());
    const net::endpoint where = place_of(s.start_text(), "iwarp");
    for (int i = 1; i <= 4; ++i) {                                          // on each shard
        BOOST_TEST((answer_to(where, "meant for it") == "rejected: gone")); // octets are not for a terminal
        BOOST_TEST(beside_module::others.served == i);
    }
    BOOST_TEST(answer_to(where, "").starts_with("accepted: "));
    BOOST_TEST(beside_module::others.served == 4);
    BOOST_TEST(beside_module::others.ended == 0);
    BOOST_TEST(s.stop().has_value());
    BOOST_TEST(beside_module::others.ended == 1);
}

BOOST_AUTO_TEST_CASE(a_module_that_fails_to_say_who_has_its_connections_is_named)
{
    const auto started = [](std::vector<std::string> listen) -> std::string {
        service s("test");
        s.modules().add(beside);
        quiet(s);
        s.set("beside.listen", std::move(listen));
        s.configure();
        try {
            s.start();
        } catch (const std::exception& e) {
            return e.what();
        }
        return "started";
    };
    beside_module::fails = true;
    BOOST_TEST(started({"iwarp://127.0.0.1:0"}) == "module beside: no more");
    // It is asked of transports that are there.
    BOOST_TEST(started({"tcp://127.0.0.1:0"}) == "started");
    beside_module::fails = false;
}

namespace {

// Ends when the test says so.
class stuck_module final : public rpc::program_module {
public:
    ~stuck_module() override { gone.release(); }
    std::vector<std::string> default_listeners() const override { return {"tcp://127.0.0.1:0"}; }
    std::vector<std::unique_ptr<rpc::program>> make_programs(shard&) override
    {
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<null_program>(alive));
        return programs;
    }
    static inline std::atomic<int> alive{0};
    void stop() noexcept override
    {
        begun.release();
        may_stop.acquire();
    }
    static inline std::binary_semaphore begun{0};
    static inline std::binary_semaphore may_stop{0};
    static inline std::binary_semaphore gone{0};
};
const module_descriptor stuck = {
    .name = "stuck", .version = "1", .summary = "for tests", .create = []() -> std::unique_ptr<module> {
        return std::make_unique<stuck_module>();
    }};

std::unique_ptr<service> started_with_what_does_not_stop()
{
    auto s = std::make_unique<service>("test");
    s->modules().add(stuck);
    quiet(*s);
    s->set("daemon.drain_seconds", 0);
    s->set("stuck.listen", std::vector<std::string>{"tcp://127.0.0.1:0"});
    s->configure();
    s->start();
    return s;
}

// Lets the stuck module go after a while: a stop() that waits for it fails the test, and does not hang it.
class late_release {
public:
    ~late_release()
    {
        over_.set_value();
        thread_.join();
    }

private:
    std::promise<void> over_;
    std::thread thread_{[this] {
        if (over_.get_future().wait_for(10s) == std::future_status::timeout)
            stuck_module::may_stop.release();
    }};
};

} // namespace

// The process is its owner's: nothing ends it.
BOOST_AUTO_TEST_CASE(a_stop_that_does_not_come_back_is_an_error_and_says_what_still_runs)
{
    const late_release otherwise;
    auto s = started_with_what_does_not_stop();
    const auto stopped = s->stop(1ms);
    BOOST_TEST_REQUIRE(!stopped.has_value());
    BOOST_TEST((stopped.error() == std::errc::timed_out));
    BOOST_TEST(!s->unfinished().empty());
    // It goes on meanwhile, and whoever asks again hears where it is.
    stuck_module::begun.acquire();
    BOOST_TEST(!s->stop(1ms).has_value());
    BOOST_TEST(s->unfinished() == "the module stuck, which does not return from its end\n");
    stuck_module::may_stop.release();
    BOOST_TEST(s->stop(1min).has_value());
    BOOST_TEST(s->unfinished().empty());
    BOOST_TEST(s->stop().has_value());
    s.reset();
    stuck_module::gone.acquire();
}

BOOST_AUTO_TEST_CASE(what_does_not_stop_is_left_behind_and_goes_when_it_ends)
{
    auto s = started_with_what_does_not_stop();
    BOOST_TEST(!s->stop(1ms).has_value());
    s.reset(); // at once
    stuck_module::begun.acquire();
    BOOST_TEST(!stuck_module::gone.try_acquire());
    stuck_module::may_stop.release();
    stuck_module::gone.acquire();
}

// Whom it does not admit it never sees.
BOOST_AUTO_TEST_CASE(a_verbs_protocol_is_asked_whom_it_admits)
{
    service s("test");
    s.modules().add(waiting);
    quiet(s);
    s.set("waiting.listen", std::vector<std::string>{"iwarp://127.0.0.1:0"});
    waiting_protocol::came = 0;
    waiting_protocol::admitted = "192.0.2.1";
    s.configure();
    s.start();
    const net::endpoint to = place_of(s.start_text(), "iwarp");
    // What is answered to a request of MPA (RFC 5044 7.1): whether it is a reject, or nothing.
    const auto asks = [&] {
        auto fd = net::start_connect(to);
        BOOST_REQUIRE(fd);
        pollfd p{fd->get(), POLLOUT, 0};
        ::poll(&p, 1, 10'000);
        constexpr std::string_view request("MPA ID Req Frame\x10\x02\0\4\0\1\0\1", 24);
        BOOST_REQUIRE(::send(fd->get(), request.data(), request.size(), 0) == 24);
        p.events = POLLIN;
        ::poll(&p, 1, 10'000);
        std::array<char, 24> reply{};
        const ssize_t n = ::recv(fd->get(), reply.data(), reply.size(), 0);
        return n == 24 && (reply[16] & 0x20) != 0;
    };
    BOOST_TEST(asks());
    BOOST_TEST(waiting_protocol::came == 0);
    waiting_protocol::admitted = "127.0.0.1";
    BOOST_TEST(!asks()); // it lets it go
    BOOST_TEST(waiting_protocol::came == 1);
    BOOST_TEST(s.stop().has_value());
    BOOST_TEST(waiting_protocol::handshakes == 1U);
}

BOOST_AUTO_TEST_CASE(what_is_said_behind_configure_is_refused)
{
    service s("test");
    s.serve("own", {"tcp://127.0.0.1:0"},
            [](shard&) { return std::vector<std::unique_ptr<rpc::program>>(); });
    s.set("metrics.listen", "off");
    s.configure();
    const auto refused = [](auto f, std::string_view what) {
        try {
            f();
        } catch (const std::logic_error& e) {
            return std::string_view(e.what()).starts_with(what);
        }
        return false;
    };
    BOOST_TEST(
        refused([&] { s.set("daemon.shards", 2); }, "service::set(daemon.shards) comes behind configure()"));
    BOOST_TEST(
        refused([&] { s.set("own.listen", std::vector<std::string>()); }, "service::set(own.listen) "));
    BOOST_TEST(refused([&] { s.set(setting_values()); }, "service::set() "));
    BOOST_TEST(refused([&] { s.load("/etc/own.toml"); }, "service::load(/etc/own.toml) "));
    BOOST_TEST(refused([&] { s.serve("late", {}, {}); }, "service::serve(late) "));
    BOOST_TEST(s.modules().find("late") == nullptr);
}

BOOST_AUTO_TEST_CASE(what_it_is_told_is_checked)
{
    const auto none = [](shard&) { return std::vector<std::unique_ptr<rpc::program>>(); };
    service s("test");
    s.serve("null", {}, none);
    BOOST_CHECK_THROW(s.serve("null", {}, none), config_error);
    BOOST_CHECK_THROW(s.serve("Null", {}, none), config_error);
    quiet(s);
    BOOST_TEST(complaint(s).find("listen is empty") != std::string::npos);
    service t("test");
    t.serve("null", {"tcp://127.0.0.1"}, none);
    quiet(t);
    BOOST_TEST(complaint(t).find("the port is missing") != std::string::npos);
    service u("test");
    u.serve("null", {"tcp://127.0.0.1:0"}, none);
    u.set("daemon.shrads", 2);
    BOOST_TEST(complaint(u).find("unknown key daemon.shrads; did you mean shards?") != std::string::npos);
    BOOST_CHECK_THROW(u.start(), std::logic_error);
    service v("test");
    BOOST_CHECK_THROW(v.start(), std::logic_error);
}

// As where the system gives no thread: each is done by who waits for it.
BOOST_AUTO_TEST_CASE(an_end_that_fails_keeps_no_other_from_its_end)
{
    std::vector<std::future<void>> ends;
    std::vector<int> done;
    for (int i = 0; i < 4; ++i)
        ends.push_back(std::async(std::launch::deferred, [&done, i] {
            done.push_back(i);
            if (i == 1 || i == 2)
                throw std::runtime_error("end " + std::to_string(i));
        }));
    BOOST_CHECK_EXCEPTION(services::end_all(ends), std::runtime_error,
                          [](const std::runtime_error& e) { return e.what() == std::string_view("end 1"); });
    BOOST_TEST(done.size() == 4u);
}

BOOST_AUTO_TEST_SUITE_END()
