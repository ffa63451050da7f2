// SPDX-License-Identifier: Apache-2.0
// The control plane: requests as lines of JSON, the socket's path, lists of shards, peers that misbehave, the end.
#include <boost/test/unit_test.hpp>

#include "control_server.hpp"
#include "control_socket.hpp"
#include "control_work.hpp"
#include "evict_command.hpp"
#include "own_commands.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/module/module.hpp>
#include <verbena/core/module/settings.hpp>
#include <verbena/core/net/connection_list.hpp>
#include <verbena/core/reactor/request_list.hpp>
#include <verbena/core/task/trace_name.hpp>
#include <verbena/core/unique_fd.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

BOOST_AUTO_TEST_SUITE(control_test)

using namespace verbena;
using namespace verbena::services;
using namespace std::chrono_literals;

namespace {

// Nothing waits that long unless something is lost.
constexpr timeval lost{60, 0};

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

struct folder {
    folder()
    {
        std::array<char, 32> name{"/tmp/verbena-control-XXXXXX"};
        BOOST_REQUIRE(::mkdtemp(name.data()) != nullptr);
        path = name.data();
    }
    ~folder() { std::filesystem::remove_all(path); }
    std::string path;
    std::string socket() const { return path + "/control"; }
};

unique_fd connected(const std::string& path)
{
    unique_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    BOOST_REQUIRE(path.size() < sizeof where.sun_path);
    std::memcpy(where.sun_path, path.c_str(), path.size() + 1);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
        fd.reset();
    else
        BOOST_REQUIRE(::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &lost, sizeof lost) == 0);
    return fd;
}

// One that asks.
class peer {
public:
    explicit peer(const std::string& path) : fd_(connected(path)) { BOOST_REQUIRE(bool(fd_)); }
    void send(std::string_view text) { BOOST_REQUIRE(write_all(text)); }
    bool write_all(std::string_view text)
    {
        while (!text.empty()) {
            const ssize_t n = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
            if (n <= 0)
                return false;
            text.remove_prefix(std::size_t(n));
        }
        return true;
    }
    // Without its line feed; nothing at the end.
    std::optional<std::string> line()
    {
        for (;;) {
            if (const std::size_t end = got_.find('\n'); end != std::string::npos) {
                std::string one = got_.substr(0, end);
                got_.erase(0, end + 1);
                return one;
            }
            char part[4096];
            const ssize_t n = ::recv(fd_.get(), part, sizeof part, 0);
            BOOST_REQUIRE(n >= 0);
            if (n == 0)
                return std::nullopt;
            got_.append(part, std::size_t(n));
        }
    }
    // All lines of one answer.
    std::vector<std::string> answer()
    {
        std::vector<std::string> all;
        do {
            const auto next = line();
            BOOST_REQUIRE(next.has_value());
            all.push_back(*next);
        } while (!has(all.back(), R"("more":false)"));
        return all;
    }
    std::vector<std::string> ask(const std::string& command)
    {
        send(R"({"version":1,"command":")" + command + "\"}\n");
        return answer();
    }
    void sends_no_more() { ::shutdown(fd_.get(), SHUT_WR); }
    void close() { fd_.reset(); }

private:
    unique_fd fd_;
    std::string got_;
};

struct rt_of {
    explicit rt_of(unsigned shards)
    {
        runtime_options o;
        o.shards = shards;
        o.reactor.policy = wait_policy::event;
        made = std::move(runtime::start(o).value());
    }
    std::unique_ptr<runtime> made;
    runtime& operator*() const { return *made; }
};

// Numbers, of which each shard has so many.
class numbers final : public control_list {
public:
    numbers(unsigned at, std::uint64_t count, std::atomic<int>& alive) : at_(at), count_(count), alive_(alive)
    {
        ++alive_;
    }
    ~numbers() override
    {
        --alive_;
        ended_on = std::this_thread::get_id();
    }
    bool next(std::vector<control_row>& rows, std::size_t most) override
    {
        asked_at_once = std::max(asked_at_once.load(), most);
        for (std::size_t i = 0; i < most && said_ < count_; ++i)
            rows.push_back({std::uint64_t(at_), said_++});
        return said_ < count_;
    }
    static inline std::atomic<std::size_t> asked_at_once = 0;
    static inline std::atomic<std::thread::id> ended_on;

private:
    const unsigned at_;
    const std::uint64_t count_;
    std::uint64_t said_ = 0;
    std::atomic<int>& alive_;
};

control_command numbers_command(std::uint64_t count, std::atomic<int>& alive)
{
    control_command c;
    c.name = "numbers";
    c.columns = {"shard", "number"};
    c.list = [count, &alive](shard& s, const control_arguments&) {
        return std::make_unique<numbers>(s.index(), count, alive);
    };
    return c;
}

control_command echo_command()
{
    control_command c;
    c.name = "echo";
    c.columns = {"text"};
    c.arguments = {{.name = "text", .help = "", .required = true},
                   {.name = "how", .help = "", .words = {"loud", "low"}}};
    c.answer = [](const control_arguments& said) {
        if (*said.find("text") == "fail")
            throw std::runtime_error("echo: that fails; say another");
        control_answer own;
        own.rows.push_back({*said.find("text")});
        return own;
    };
    return c;
}

control_table table_of(std::vector<control_command> all)
{
    control_table table;
    for (control_command& c : all)
        table.add(std::move(c));
    return table;
}

std::string refusal_of(std::string_view line)
{
    static const control_table table = table_of({echo_command()});
    const auto read = read_control_request(line, table);
    const auto* why = std::get_if<control_refusal>(&read);
    return why == nullptr ? "" : std::string(why->code) + ' ' + why->message;
}

std::string complaint_of(const std::string& path)
{
    try {
        const control_socket s(path);
    } catch (const config_error& e) {
        return e.what();
    }
    return {};
}

std::size_t rows_in(const std::vector<std::string>& lines)
{
    std::size_t n = 0;
    for (const std::string& line : lines) {
        for (std::size_t at = 0; (at = line.find("\"number\":", at)) != std::string::npos; ++at)
            ++n;
    }
    return n;
}

// A command that works until it is released; its name may be chosen.
class held_work {
public:
    control_command command(std::string name = "toil")
    {
        control_command c;
        c.name = std::move(name);
        c.columns = {"text"};
        c.arguments = {{.name = "text", .help = ""}};
        c.work = [this](const control_arguments& said, const std::stop_token& stop) {
            began_.fetch_add(1);
            began_.notify_all();
            const std::stop_callback asked(stop, [this] {
                asked_to_end_ = true;
                release();
            });
            released_.wait(false);
            if (const std::string* text = said.find("text"); text != nullptr && *text == "fail")
                throw std::runtime_error("toil: that fails; say another");
            sigset_t blocked;
            ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
            control_answer own;
            own.rows.push_back(
                {std::string(::sigismember(&blocked, SIGTERM) == 1 ? "done" : "signals come")});
            ended_ = true;
            return own;
        };
        return c;
    }
    void await_begun(int n = 1)
    {
        for (int now = began_; now < n; now = began_)
            began_.wait(now);
    }
    void release()
    {
        released_ = true;
        released_.notify_all();
    }
    bool has_ended() const { return ended_; }
    bool was_asked_to_end() const { return asked_to_end_; }

private:
    std::atomic<int> began_ = 0;
    std::atomic<bool> released_ = false;
    std::atomic<bool> ended_ = false;
    std::atomic<bool> asked_to_end_ = false;
};

// Keeps a shard from all else, from the constructor to the destructor.
class held_shard {
public:
    held_shard(runtime& rt, std::size_t at)
        : holder_([this, &rt, at] {
              rt.call(at, [this](shard&) {
                  held_.set_value();
                  released_.get_future().wait();
              });
          })
    {
        held_.get_future().wait();
    }
    ~held_shard() { release(); }
    void release()
    {
        if (!holder_.joinable())
            return;
        released_.set_value();
        holder_.join();
    }

private:
    std::promise<void> held_;
    std::promise<void> released_;
    std::thread holder_;
};

} // namespace

BOOST_AUTO_TEST_CASE(what_is_no_request_is_told_why)
{
    BOOST_TEST(refusal_of(R"({"version":1,"command":"echo","arguments":["a"]})") == "");
    BOOST_TEST(
        refusal_of(R"({"version":1,"command":"echo","arguments":{"how":"low","text":"[[[[[[\"{{{{{"}})") ==
        "");
    for (const char* line :
         {"", "x", "{", "[]", "1", "null", "\"version\"", "{\"version\":1", "{} {}",
          R"({"version":"1","command":"echo"})", R"({"command":"echo"})", R"({"version":1})",
          R"({"version":1,"command":2})", R"({"version":1.0,"command":"echo"})"})
        BOOST_TEST(refusal_of(line).starts_with("bad_request "), line << " gives " << refusal_of(line));
    BOOST_TEST(has(refusal_of(R"({"version":1,"comand":"echo"})"), "comand; did you mean command?"));
    BOOST_TEST(has(refusal_of(R"({"version":2,"command":"echo"})"), "unknown_version no version 2"));
    BOOST_TEST(has(refusal_of(R"({"version":2,"command":"echo"})"), "there is 1"));
    BOOST_TEST(has(refusal_of(R"({"version":1,"command":"ecco"})"),
                   "unknown_command no command ecco; did you mean echo?"));
    BOOST_TEST(has(refusal_of(R"({"version":1,"command":"zzzzzz"})"), "known: echo"));
    for (const char* arguments :
         {"1", "null", "\"a\"", "[1]", "[\"a\",\"low\",\"b\"]", "[]", "{\"how\":\"low\"}",
          "{\"text\":\"a\",\"hoe\":\"low\"}", "[\"a\",\"lo\"]", "[[\"a\"]]"})
        BOOST_TEST(refusal_of(R"({"version":1,"command":"echo","arguments":)" + std::string(arguments) + '}')
                       .starts_with("bad_argument echo: "),
                   arguments);
    BOOST_TEST(has(refusal_of(R"({"version":1,"command":"echo"})"), "it is called as: echo TEXT [HOW]"));
    // A name that a terminal would obey comes back harmless.
    BOOST_TEST(has(refusal_of("{\"version\":1,\"command\":\"\\u001b[2J\"}"), "no command \\033[2J"));
}

BOOST_AUTO_TEST_CASE(a_request_is_bounded_before_it_is_parsed)
{
    const std::string deep(100'000, '[');
    BOOST_TEST(has(refusal_of(deep), "more than 16384 bytes"));
    BOOST_TEST(has(refusal_of(deep.substr(0, 5)), "deeper than 4"));
    BOOST_TEST(has(refusal_of(R"({"a":{"a":{"a":{"a":{}}}}})"), "deeper than 4"));
    BOOST_TEST(!has(refusal_of(R"({"a":{"a":{"a":{}}}})"), "deeper"));
    const std::string front = R"({"version":1,"command":"echo","arguments":[")";
    const auto request = [&](std::size_t size) {
        return front + std::string(size - front.size() - 3, 'a') + "\"]}";
    };
    BOOST_TEST(refusal_of(request(max_control_line)) == "");
    BOOST_TEST(has(refusal_of(request(max_control_line + 1)), "more than 16384 bytes"));
}

BOOST_AUTO_TEST_CASE(names_of_commands_are_checked_when_they_are_added)
{
    const auto told = [](std::string name, std::vector<std::string> columns = {}) -> std::string {
        control_table table = table_of({echo_command()});
        control_command c;
        c.name = std::move(name);
        c.columns = std::move(columns);
        try {
            table.add(std::move(c));
        } catch (const config_error& e) {
            return e.what();
        }
        return {};
    };
    BOOST_TEST(told("evict-2", {"peer_name"}) == "");
    BOOST_TEST(has(told("echo"), "two control commands echo"));
    BOOST_TEST(has(told(""), "no name that a command may have"));
    BOOST_TEST(has(told("Evict"), "\"Evict\""));
    BOOST_TEST(has(told(std::string(33, 'a')), "up to 32"));
    BOOST_TEST(has(told("evict", {"Peer"}), "a column \"Peer\""));
}

BOOST_AUTO_TEST_CASE(text_that_is_no_utf8_becomes_json)
{
    const control_command c = echo_command();
    const control_row row{std::string("a\xff\nb")};
    const std::string line = control_rows(c, std::span(&row, 1));
    BOOST_TEST(line == "{\"version\":1,\"rows\":[{\"text\":\"a\xef\xbf\xbd\\nb\"}],\"more\":true}\n");
    // A row that is too short has nothing there.
    const control_row none;
    BOOST_TEST(has(control_rows(c, std::span(&none, 1)), "{\"text\":null}"));
}

BOOST_AUTO_TEST_CASE(the_socket_is_its_users_alone_and_goes_with_it)
{
    const folder in;
    ::umask(0);
    {
        const control_socket s(in.socket());
        struct stat is{};
        BOOST_REQUIRE(::stat(in.socket().c_str(), &is) == 0);
        BOOST_TEST(S_ISSOCK(is.st_mode));
        BOOST_TEST((is.st_mode & 0777) == 0600);
    }
    BOOST_TEST(!std::filesystem::exists(in.socket()));
}

BOOST_AUTO_TEST_CASE(a_path_is_one_living_daemons)
{
    const folder in;
    {
        const control_socket first(in.socket());
        BOOST_TEST(has(complaint_of(in.socket()), "another daemon that is running"));
        BOOST_TEST(bool(connected(in.socket()))); // and it still has it
    }
    // One that died without a word leaves its file.
    const pid_t child = ::fork();
    if (child == 0) {
        new control_socket(in.socket()); // NOLINT: nobody destroys it
        ::_exit(0);
    }
    int status = 1;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    BOOST_REQUIRE(status == 0);
    BOOST_REQUIRE(std::filesystem::exists(in.socket()));
    BOOST_TEST(!connected(in.socket()));
    const control_socket second(in.socket());
    BOOST_TEST(bool(connected(in.socket())));
}

BOOST_AUTO_TEST_CASE(what_is_no_socket_is_left_alone)
{
    const folder in;
    std::ofstream(in.socket()) << "precious";
    BOOST_TEST(has(complaint_of(in.socket()), "something else than a socket"));
    BOOST_TEST(std::filesystem::file_size(in.socket()) == 8);
    BOOST_TEST(has(complaint_of(in.path + "/no/control"), "No such file"));
    const std::string too_long = complaint_of(in.path + '/' + std::string(120, 'a'));
    BOOST_TEST(has(too_long, "at most 107 bytes"));
    BOOST_TEST(has(too_long, "[daemon] control, or off"));
}

BOOST_AUTO_TEST_CASE(a_lock_that_is_a_link_is_not_followed)
{
    const folder in;
    std::filesystem::create_symlink(in.path + "/elsewhere", in.socket() + ".lock");
    BOOST_TEST(has(complaint_of(in.socket()), "lock"));
    BOOST_TEST(!std::filesystem::exists(in.path + "/elsewhere"));
}

BOOST_AUTO_TEST_CASE(runtime_directory_is_the_first_of_several)
{
    const char* const before = std::getenv("RUNTIME_DIRECTORY");
    const std::string kept = before == nullptr ? "" : before;
    ::setenv("RUNTIME_DIRECTORY", "/run/one:/run/two", 1);
    BOOST_TEST(runtime_control_path().value_or("") == "/run/one/control");
    ::setenv("RUNTIME_DIRECTORY", "one", 1);
    BOOST_TEST(!runtime_control_path().has_value());
    ::unsetenv("RUNTIME_DIRECTORY");
    BOOST_TEST(!runtime_control_path().has_value());
    if (before != nullptr)
        ::setenv("RUNTIME_DIRECTORY", kept.c_str(), 1);
}

BOOST_AUTO_TEST_CASE(commands_answer_in_lines)
{
    const folder in;
    rt_of rt(2);
    control_server server(*rt, table_of({echo_command()}), {.path = in.socket()});
    peer p(in.socket());
    p.send("{\"version\":1,\"command\":\"echo\",\"arguments\":[\"hello\"]}\n");
    const auto lines = p.answer();
    BOOST_REQUIRE(lines.size() == 3);
    BOOST_TEST(lines[0] == R"({"version":1,"command":"echo","columns":["text"],"single":false,"more":true})");
    BOOST_TEST(lines[1] == R"({"version":1,"rows":[{"text":"hello"}],"more":true})");
    BOOST_TEST(lines[2] == R"({"version":1,"shards_silent":[],"shards_failed":[],"more":false})");
    // What the command throws is the answer, and the connection goes on.
    p.send("{\"version\":1,\"command\":\"echo\",\"arguments\":[\"fail\"]}\nx\n");
    BOOST_TEST(
        p.answer().back() ==
        R"({"version":1,"error":{"code":"failed","message":"echo: that fails; say another"},"more":false})");
    BOOST_TEST(has(p.answer().back(), "bad_request"));
    p.sends_no_more();
    BOOST_TEST(!p.line().has_value());
}

BOOST_AUTO_TEST_CASE(lists_of_shards_come_whole_and_in_parts)
{
    const folder in;
    rt_of rt(3);
    std::atomic<int> alive{0};
    control_server server(*rt, table_of({numbers_command(1234, alive)}),
                          {.path = in.socket(), .patience = 1h});
    peer p(in.socket());
    const auto lines = p.ask("numbers");
    BOOST_TEST(rows_in(lines) == 3 * 1234);
    BOOST_TEST(has(lines.back(), R"("shards_silent":[])"));
    BOOST_TEST(numbers::asked_at_once == rows_of_a_part);
    for (const std::string& line : lines)
        BOOST_TEST(rows_in({line}) <= rows_of_a_part);
    server.close();
    BOOST_TEST(alive == 0);
}

BOOST_AUTO_TEST_CASE(a_list_that_throws_costs_its_shard_alone)
{
    const folder in;
    rt_of rt(2);
    std::atomic<int> alive{0};
    control_command c = numbers_command(5, alive);
    c.list = [&alive](shard& s, const control_arguments&) -> std::unique_ptr<control_list> {
        if (s.index() == 0)
            throw std::runtime_error("no more");
        return std::make_unique<numbers>(s.index(), 5, alive);
    };
    control_server server(*rt, table_of({c}), {.path = in.socket(), .patience = 1h});
    peer p(in.socket());
    const auto lines = p.ask("numbers");
    BOOST_TEST(rows_in(lines) == 5);
    BOOST_TEST(has(lines.back(),
                   R"("shards_failed":[{"shard":0,"message":"the list ended by an exception: no more"}])"));
}

BOOST_AUTO_TEST_CASE(a_shard_that_hangs_is_named_and_the_others_answer)
{
    const folder in;
    rt_of rt(2);
    std::atomic<int> alive{0};
    control_server server(*rt, table_of({numbers_command(5, alive), echo_command()}),
                          {.path = in.socket(), .patience = 20ms});
    std::thread::id of_shard;
    (*rt).call(1, [&](shard&) { of_shard = std::this_thread::get_id(); });
    held_shard held(*rt, 1);
    peer p(in.socket());
    auto lines = p.ask("numbers");
    BOOST_TEST(rows_in(lines) == 5);
    BOOST_TEST(has(lines.back(), R"("shards_silent":[1])"));
    // Another command meanwhile, too.
    p.send("{\"version\":1,\"command\":\"echo\",\"arguments\":[\"hello\"]}\n");
    BOOST_TEST(p.answer().size() == 3);
    server.close(); // waits for no shard
    BOOST_TEST(!std::filesystem::exists(in.socket()));
    BOOST_TEST(complaint_of(in.socket()) == ""); // it is free for another
    held.release();
    (*rt).call(1, [](shard&) {});
    BOOST_TEST(alive == 0);
}

// Begun, and then its shard hangs: the list ends where it was made, when the shard comes to it.
BOOST_AUTO_TEST_CASE(a_list_that_is_given_up_ends_on_its_shard)
{
    const folder in;
    rt_of rt(1);
    std::atomic<int> alive{0};
    std::thread::id of_shard;
    (*rt).call(0, [&](shard&) { of_shard = std::this_thread::get_id(); });
    for (const bool closes : {false, true}) {
        control_server server(*rt, table_of({numbers_command(1'000'000, alive)}),
                              {.path = in.socket(), .patience = 1h});
        peer p(in.socket());
        p.send("{\"version\":1,\"command\":\"numbers\"}\n");
        BOOST_REQUIRE(p.line().has_value());
        BOOST_REQUIRE(p.line().has_value()); // it does not read on, so the list stays
        BOOST_TEST(alive == 1);
        if (closes)
            server.close();
        else
            p.close();
        while (alive != 0)
            (*rt).call(0, [](shard&) {});
        BOOST_TEST((numbers::ended_on.load() == of_shard));
    }
}

BOOST_AUTO_TEST_CASE(a_peer_that_never_reads_holds_a_part_of_each_shard_and_nobody_up)
{
    const folder in;
    rt_of rt(2); // what one shard says comes while the other's is on its way
    std::atomic<int> alive{0};
    std::atomic<std::uint64_t> said{0};
    control_command c = numbers_command(0, alive);
    class endless final : public control_list {
    public:
        explicit endless(std::atomic<std::uint64_t>& said) : said_(said) {}
        bool next(std::vector<control_row>& rows, std::size_t most) override
        {
            for (std::size_t i = 0; i < most; ++i)
                rows.push_back({std::uint64_t(0), said_++});
            return true;
        }

    private:
        std::atomic<std::uint64_t>& said_;
    };
    c.list = [&](shard&, const control_arguments&) { return std::make_unique<endless>(said); };
    control_server server(*rt, table_of({c, echo_command()}), {.path = in.socket(), .patience = 1h});
    peer silent(in.socket());
    silent.send("{\"version\":1,\"command\":\"numbers\"}\n");
    // Until what the kernel takes for it is full: then no more is asked for, however often others ask.
    peer other(in.socket());
    std::uint64_t before = 0;
    int still = 0;
    while (still < 100 && said < 1'000'000U) {
        other.send("{\"version\":1,\"command\":\"echo\",\"arguments\":[\"a\"]}\n");
        BOOST_REQUIRE(other.answer().size() == 3);
        (*rt).call(0, [](shard&) {});
        (*rt).call(1, [](shard&) {});
        const std::uint64_t now = said;
        still = now == before && now != 0 ? still + 1 : 0;
        before = now;
    }
    BOOST_TEST(said < 1'000'000U);
    BOOST_TEST(said == before);
}

BOOST_AUTO_TEST_CASE(a_thousand_requests_in_one_write_are_answered_in_their_order)
{
    const folder in;
    rt_of rt(1);
    control_server server(*rt, table_of({echo_command()}), {.path = in.socket()});
    peer p(in.socket());
    std::string all;
    for (int i = 0; i < 1000; ++i)
        all += "{\"version\":1,\"command\":\"echo\",\"arguments\":[\"n" + std::to_string(i) + "\"]}\n";
    std::atomic<bool> sent{false};
    std::thread writer([&] { sent = p.write_all(all); }); // which may assert nothing by itself
    for (int i = 0; i < 1000; ++i) {
        const auto lines = p.answer();
        BOOST_REQUIRE(lines.size() == 3);
        BOOST_REQUIRE(has(lines[1], "\"n" + std::to_string(i) + '"'));
    }
    writer.join();
    BOOST_TEST(sent.load());
}

BOOST_AUTO_TEST_CASE(a_line_without_end_ends_the_connection)
{
    const folder in;
    rt_of rt(1);
    control_server server(*rt, table_of({echo_command()}), {.path = in.socket()});
    peer endless(in.socket());
    endless.send(std::string(max_control_line + 1, ' '));
    BOOST_TEST(has(endless.answer().back(), "more than 16384 bytes"));
    BOOST_TEST(!endless.line().has_value());
    peer half(in.socket());
    half.send("{\"version\":1,");
    half.sends_no_more();
    BOOST_TEST(has(half.answer().back(), "does not end in a line feed"));
    BOOST_TEST(!half.line().has_value());
}

BOOST_AUTO_TEST_CASE(connections_are_bounded_and_those_beyond_are_told)
{
    const folder in;
    rt_of rt(1);
    control_server server(*rt, table_of({echo_command()}), {.path = in.socket(), .max_connections = 2});
    peer first(in.socket());
    std::optional<peer> second(std::in_place, in.socket());
    for (peer* const each : {&first, &*second}) {
        each->send("x\n");
        BOOST_TEST(has(each->answer().back(), "bad_request"));
    }
    peer third(in.socket());
    BOOST_TEST(has(third.answer().back(), "there are 2 connections"));
    BOOST_TEST(!third.line().has_value());
    second->sends_no_more();
    BOOST_TEST(!second->line().has_value()); // then there is room
    peer fourth(in.socket());
    fourth.send("x\n");
    BOOST_TEST(has(fourth.answer().back(), "bad_request"));
}

BOOST_AUTO_TEST_CASE(who_says_nothing_is_closed)
{
    const folder in;
    rt_of rt(1);
    control_server server(*rt, table_of({echo_command()}), {.path = in.socket(), .idle = 10ms});
    peer idle(in.socket());
    BOOST_TEST(!idle.line().has_value());
}

BOOST_AUTO_TEST_CASE(other_users_are_refused)
{
    BOOST_REQUIRE(::geteuid() == 0);
    const folder in;
    rt_of rt(1);
    control_server server(*rt, table_of({echo_command()}), {.path = in.socket()});
    BOOST_REQUIRE(::chmod(in.path.c_str(), 0755) == 0);
    // Told by the exit status, since what a test says counts in one process.
    const auto tries = [&]() -> int {
        const pid_t child = ::fork();
        if (child == 0) {
            if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0)
                ::_exit(9);
            const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
            sockaddr_un where{};
            where.sun_family = AF_UNIX;
            std::memcpy(where.sun_path, in.socket().c_str(), in.socket().size() + 1);
            if (::connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
                ::_exit(errno == EACCES ? 1 : 8);
            char got[512] = {};
            const ssize_t n = ::recv(fd, got, sizeof got - 1, 0);
            ::_exit(n > 0 && std::strstr(got, "\"refused\"") != nullptr && ::recv(fd, got, 1, 0) == 0 ? 2
                                                                                                      : 7);
        }
        int status = 0;
        BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
        return WEXITSTATUS(status);
    };
    BOOST_TEST(tries() == 1); // by the file's mode
    BOOST_REQUIRE(::chmod(in.socket().c_str(), 0666) == 0);
    BOOST_TEST(tries() == 2); // and by who it is
}

BOOST_AUTO_TEST_CASE(what_ends_the_program_comes_after_its_answer)
{
    const folder in;
    rt_of rt(1);
    control_table table;
    std::promise<void> drained;
    told_of_service told;
    told.program = "test";
    told.shards = &*rt;
    const module_table modules;
    told.modules = &modules;
    told.drain_seconds = [] { return std::uint64_t(7); };
    told.drain = [&] { drained.set_value(); };
    add_own_commands(table, told);
    control_server server(*rt, std::move(table), {.path = in.socket()});
    peer p(in.socket());
    const auto lines = p.ask("drain");
    BOOST_TEST(lines.at(1) == R"({"version":1,"rows":[{"draining":true,"drain_seconds":7}],"more":true})");
    drained.get_future().wait();
}

BOOST_AUTO_TEST_CASE(what_may_be_a_secret_is_not_shown)
{
    const auto text = [](const char* value) { return setting_values::value{std::string(value)}; };
    setting_values inner;
    inner.set("token_file", text("a secret"));
    inner.set("bytes", text("shown"));
    setting_values all;
    for (const char* name : {"password", "api_key", "client-secrets"})
        all.set(name, text("a secret"));
    all.set("keyboard", text("shown"));
    all.set("users", setting_values::value{setting_values::value::tables{inner}});
    all.set("credential", setting_values::value{setting_values::value::tables{inner}});
    const setting_values out = without_secrets(all);
    for (const char* name : {"password", "api_key", "client-secrets", "credential"})
        BOOST_TEST(out.text(name) == "(not shown)", name);
    BOOST_TEST(out.text("keyboard") == "shown");
    BOOST_TEST(out.tables("users").at(0).text("token_file") == "(not shown)");
    BOOST_TEST(out.tables("users").at(0).text("bytes") == "shown");
}

BOOST_AUTO_TEST_CASE(every_service_has_these_commands)
{
    const folder in;
    rt_of rt(2);
    control_table table;
    told_of_service told;
    told.program = "test";
    told.shards = &*rt;
    const module_table modules;
    told.modules = &modules;
    add_own_commands(table, told);
    control_server server(*rt, std::move(table), {.path = in.socket()});
    peer p(in.socket());
    std::string all;
    for (const std::string& line : p.ask("help"))
        all += line;
    for (const char* name : {"status", "config", "requests", "modules", "loglevel", "log", "drain", "help"})
        BOOST_TEST(has(all, "\"command\":\"" + std::string(name) + '"'), name);
    BOOST_TEST(has(all, "[trace|debug|info|warning|error|off]"));
    BOOST_TEST(has(p.ask("drain").back(), "does not leave its end to service::run()"));
    const log_level before = current_log_level();
    p.send("{\"version\":1,\"command\":\"loglevel\",\"arguments\":[\"error\"]}\n");
    BOOST_TEST(has(p.answer().at(1), "\"error\""));
    BOOST_TEST((current_log_level() == log_level::error));
    set_log_level(before);
    BOOST_TEST(has(p.ask("status").at(1), "\"shards\":2"));
}

BOOST_AUTO_TEST_CASE(a_work_holds_up_nobody_and_tells_that_it_goes_on)
{
    const folder in;
    rt_of rt(1);
    held_work toil;
    control_server server(*rt, table_of({toil.command(), echo_command()}),
                          {.path = in.socket(), .beat = 1ms});
    peer waiting(in.socket());
    waiting.send("{\"version\":1,\"command\":\"toil\"}\n");
    BOOST_TEST(*waiting.line() ==
               R"({"version":1,"command":"toil","columns":["text"],"single":false,"more":true})");
    for (int i = 0; i < 3; ++i)
        BOOST_TEST(has(*waiting.line(), R"("working_seconds":)"));
    BOOST_TEST((server.works() == std::vector<std::string>{"toil"}));
    peer other(in.socket());
    other.send("{\"version\":1,\"command\":\"echo\",\"arguments\":[\"here\"]}\n");
    BOOST_TEST(has(other.answer().at(1), "here"));
    toil.release();
    const auto rows_of = [](const std::vector<std::string>& lines) { // among those that tell that it goes on
        std::string rows;
        for (const std::string& line : lines)
            rows += has(line, "rows") ? line : "";
        return rows;
    };
    const std::string done = R"({"version":1,"rows":[{"text":"done"}],"more":true})";
    BOOST_TEST(rows_of(waiting.answer()) == done);
    BOOST_TEST(server.works().empty());
    BOOST_TEST(rows_of(waiting.ask("toil")) == done); // again, and on the same connection
}

BOOST_AUTO_TEST_CASE(a_work_that_throws_fails_with_its_message)
{
    const folder in;
    rt_of rt(1);
    held_work toil;
    toil.release();
    control_server server(*rt, table_of({toil.command()}), {.path = in.socket()});
    peer p(in.socket());
    p.send("{\"version\":1,\"command\":\"toil\",\"arguments\":[\"fail\"]}\n");
    BOOST_TEST(
        p.answer().back() ==
        R"({"version":1,"error":{"code":"failed","message":"toil: that fails; say another"},"more":false})");
    BOOST_TEST(has(p.ask("toil").at(1), "done"));
}

BOOST_AUTO_TEST_CASE(one_work_of_a_name_and_eight_of_all)
{
    const folder in;
    rt_of rt(1);
    held_work toil;
    std::vector<control_command> commands;
    for (std::size_t i = 0; i <= work_threads::most; ++i)
        commands.push_back(toil.command("toil" + std::to_string(i)));
    control_server server(*rt, table_of(std::move(commands)), {.path = in.socket()});
    std::vector<peer> peers;
    for (std::size_t i = 0; i < work_threads::most; ++i)
        peers.emplace_back(in.socket())
            .send("{\"version\":1,\"command\":\"toil" + std::to_string(i) + "\"}\n");
    toil.await_begun(int(work_threads::most));
    peer late(in.socket());
    const std::string again = late.ask("toil0").back();
    BOOST_TEST(has(again, R"("code":"busy")"));
    BOOST_TEST(has(again, "toil0 is under way since "));
    late.send("{\"version\":1,\"command\":\"toil8\"}\n");
    BOOST_REQUIRE(has(*late.line(), "there are 8 commands under way"));
    toil.release();
    for (peer& p : peers)
        BOOST_TEST(has(p.answer().back(), "shards_silent"));
    BOOST_TEST(has(late.ask("toil8").at(1), "done"));
}

BOOST_AUTO_TEST_CASE(a_work_goes_on_without_its_peer_and_ends_before_the_service)
{
    const folder in;
    rt_of rt(1);
    held_work toil;
    control_server server(*rt, table_of({toil.command(), echo_command()}), {.path = in.socket()});
    {
        peer gone(in.socket());
        gone.send("{\"version\":1,\"command\":\"toil\"}\n");
        toil.await_begun();
    }
    BOOST_TEST(has(peer(in.socket()).ask("toil").back(), "under way"));
    BOOST_TEST(!toil.was_asked_to_end());
    server.close();
    BOOST_TEST(toil.was_asked_to_end());
    toil.release();
    server.finish();
    BOOST_TEST(toil.has_ended());
    BOOST_TEST(server.works().empty());
}

BOOST_AUTO_TEST_CASE(a_command_has_work_or_the_rest)
{
    held_work toil;
    control_command both = toil.command();
    both.answer = [](const control_arguments&) { return control_answer(); };
    BOOST_CHECK_EXCEPTION(table_of({both}), config_error,
                          [](const config_error& e) { return has(e.what(), "let the work give all rows"); });
}

namespace {

class listed final : public listed_request {
public:
    void report(request_report& into) const noexcept override
    {
        into.trace = trace_of(3, 1);
        into.peer.append("192.0.2.1:700");
        into.protocol.append("test");
    }
};

std::size_t count(const std::string& text, const std::string& what)
{
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size())
        ++n;
    return n;
}

} // namespace

// However many there are, the shard is held for a part of them.
BOOST_AUTO_TEST_CASE(requests_are_listed_in_parts)
{
    const folder in;
    rt_of rt(1);
    control_table table;
    told_of_service told;
    told.program = "test";
    told.shards = &*rt;
    const module_table modules;
    told.modules = &modules;
    add_own_commands(table, told);
    std::vector<std::unique_ptr<listed>> all;
    (*rt).call(0, [&](shard& s) {
        for (unsigned i = 0; i < 250; ++i)
            s.reactor().requests().begin(*all.emplace_back(std::make_unique<listed>()));
    });
    {
        control_server server(*rt, std::move(table), {.path = in.socket()});
        peer p(in.socket());
        const auto lines = p.ask("requests");
        BOOST_TEST(has(lines.front(), R"("largest_first":"age_ms")"), lines.front());
        std::size_t rows = 0;
        for (const std::string& line : lines) {
            BOOST_TEST(count(line, R"("call":"3.00000001")") <= rows_of_a_part);
            rows += count(line, R"("call":"3.00000001")");
        }
        BOOST_TEST(rows == 250U);
        BOOST_TEST(
            has(lines.at(1),
                R"("peer":"192.0.2.1:700","protocol":"test","transport":null,"shard":0,"operation":null)"),
            lines.at(1));
        p.send("{\"version\":1,\"command\":\"requests\",\"arguments\":[\"slowest\"]}\n");
        BOOST_TEST(!has(p.answer().at(1), "\"call\"")); // none has ended
    }
    (*rt).call(0, [&](shard&) { all.clear(); });
}

namespace {

// One whose peer makes another as soon as it ends.
struct comes_back final : listed_connection {
    connection_report report() const override
    {
        connection_report r;
        r.peer = "192.0.2.7:1021";
        return r;
    }
    connection_party party() const noexcept override { return {.address = "192.0.2.7"}; }
    void end_now() noexcept override { ++ended; }
    std::size_t ended = 0;
};

} // namespace

BOOST_AUTO_TEST_CASE(connections_that_come_back_hold_up_no_evict)
{
    rt_of rt(1);
    told_of_service told;
    told.shards = &*rt;
    const module_table modules;
    told.modules = &modules;
    connection_list connections;
    told.protocols.push_back({"test", [&](std::size_t) -> connection_list& { return connections; }});
    std::vector<std::unique_ptr<comes_back>> all;
    (*rt).call(0, [&](shard&) {
        for (int i = 0; i < 40; ++i) // more than a shard ends at once
            all.emplace_back(std::make_unique<comes_back>())->join(&connections);
    });
    const control_command evict =
        evict_command(std::make_shared<const told_of_service>(told), std::chrono::milliseconds(20));
    control_arguments said;
    said.set("client", "192.0.2.7");
    const control_answer answer = evict.work(said, std::stop_token());
    BOOST_REQUIRE(answer.rows.size() == 1u);
    const std::string remains = std::get<std::string>(answer.rows.front().back());
    BOOST_TEST(
        remains ==
        "connections, which are made as fast as they are ended: keep it out, by `evict CLIENT SECONDS`");
    BOOST_TEST(std::get<std::uint64_t>(answer.rows.front()[9]) >= 64u);
    (*rt).call(0, [&](shard&) { all.clear(); });
}

namespace {

// One with three clients.
struct has_clients final : module, evicting {
    std::string_view role() const noexcept override { return "test"; }
    std::vector<evictable> find_clients(const std::string&, std::size_t) override
    {
        std::vector<evictable> all(3);
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i].id = "client " + std::to_string(i);
        return all;
    }
    bool keep_out(const std::string&, std::chrono::seconds) override { return true; }
    evicted end(const evictable& client, std::chrono::milliseconds) override
    {
        ended.push_back(client.id);
        at_end();
        return {};
    }
    std::vector<std::string> ended;
    std::function<void()> at_end = [] {};
};

// Rows of clients, and one of connections, without any.
struct evicting_service {
    static inline const module_descriptor described = {.name = "one", .version = "1", .summary = "one"};
    evicting_service()
    {
        auto made = std::make_unique<has_clients>();
        clients = made.get();
        modules.add(described, std::move(made), "test");
        modules.mark_used("one");
        told.shards = &*rt;
        told.modules = &modules;
    }
    /// What remains of each.
    std::vector<std::string> evict(std::chrono::milliseconds patience, const std::stop_token& stop)
    {
        const control_command evict = evict_command(std::make_shared<const told_of_service>(told), patience);
        control_arguments said;
        said.set("client", "any");
        std::vector<std::string> all;
        for (const control_row& row : evict.work(said, stop).rows) {
            const std::string* const text = std::get_if<std::string>(&row.back());
            all.push_back(text == nullptr ? "nothing" : *text);
        }
        return all;
    }
    rt_of rt{1};
    module_table modules;
    has_clients* clients = nullptr;
    told_of_service told;
};

const std::string not_ended = "it was not ended, since the command's time was over: evict it again";

} // namespace

BOOST_AUTO_TEST_CASE(evict_ends_no_client_when_its_time_is_over)
{
    evicting_service s;
    const std::vector<std::string> none = {not_ended, not_ended, not_ended, "nothing"};
    BOOST_TEST(s.evict(0ms, {}) == none, boost::test_tools::per_element());
    BOOST_TEST(s.clients->ended.empty());
    const std::vector<std::string> all = {"nothing", "nothing", "nothing", "nothing"};
    BOOST_TEST(s.evict(1h, {}) == all, boost::test_tools::per_element());
    BOOST_TEST(s.clients->ended.size() == 3u);
}

// Each may wait for a disk, and the stop of the service waits for the command.
BOOST_AUTO_TEST_CASE(evict_ends_no_other_client_when_it_is_asked_to_stop)
{
    evicting_service s;
    std::stop_source stop;
    s.clients->at_end = [&] { stop.request_stop(); };
    const std::vector<std::string> first = {"nothing", not_ended, not_ended, "nothing"};
    BOOST_TEST(s.evict(1h, stop.get_token()) == first, boost::test_tools::per_element());
    BOOST_TEST(s.clients->ended.size() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
