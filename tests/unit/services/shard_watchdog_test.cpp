// SPDX-License-Identifier: Apache-2.0
// The service manager's watchdog: when it is answered, and how often it asks.
#include <boost/test/unit_test.hpp>

#include <service/shard_watchdog.hpp>
#include <service/state_directory.hpp>

#include "../log_at.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/module/start_error.hpp>
#include <verbena/core/reactor/runtime.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <future>
#include <latch>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(shard_watchdog_test)

using namespace verbena;
using namespace verbena::services;

namespace {

class variable {
public:
    variable(const char* name, const char* value) : name_(name)
    {
        if (const char* const before = std::getenv(name))
            before_ = before;
        if (value != nullptr)
            ::setenv(name, value, 1);
        else
            ::unsetenv(name);
    }
    variable(const variable&) = delete;
    ~variable()
    {
        if (before_)
            ::setenv(name_, before_->c_str(), 1);
        else
            ::unsetenv(name_);
    }

private:
    const char* name_;
    std::optional<std::string> before_;
};

struct captured {
    captured()
    {
        set_log_capture(
            [](void* to, std::string_view line) {
                auto& self = *static_cast<captured*>(to);
                const std::lock_guard lock(self.mutex);
                self.lines.emplace_back(line);
            },
            this);
    }
    captured(const captured&) = delete;
    ~captured() { set_log_capture(nullptr, nullptr); }
    std::ptrdiff_t count(std::string_view text)
    {
        const std::lock_guard lock(mutex);
        return std::ranges::count_if(lines, [&](const auto& l) { return l.find(text) != l.npos; });
    }
    std::mutex mutex;
    std::vector<std::string> lines;
};

} // namespace

BOOST_AUTO_TEST_CASE(its_interval_is_what_systemd_says)
{
    const variable none("WATCHDOG_PID", nullptr);
    {
        const variable v("WATCHDOG_USEC", "3000000");
        BOOST_TEST((watchdog_interval() == std::chrono::seconds(3)));
        const std::string own = std::to_string(::getpid()), other = std::to_string(::getppid());
        const variable ours("WATCHDOG_PID", own.c_str());
        BOOST_TEST((watchdog_interval() == std::chrono::seconds(3)));
        const variable theirs("WATCHDOG_PID", other.c_str());
        BOOST_TEST(!watchdog_interval());
    }
    for (const char* bad : {"", "0", "-1", "3s", "99999999999999999999999"}) {
        const variable v("WATCHDOG_USEC", bad);
        BOOST_TEST(!watchdog_interval());
    }
    const variable v("WATCHDOG_USEC", nullptr);
    BOOST_TEST(!watchdog_interval());
}

BOOST_AUTO_TEST_CASE(a_shard_that_runs_nothing_is_named_once)
{
    runtime_options options;
    options.shards = 2;
    auto rt = runtime::start(options).value();
    shard_watchdog watchdog(*rt);
    const auto answered = [&] {
        for (std::size_t i = 0; i < rt->size(); ++i) // each has then run what it was asked before
            rt->call(i, [](shard&) {});
    };
    const test::log_at level(log_level::info);
    captured log;
    BOOST_TEST(watchdog.ask());
    answered();
    BOOST_TEST(watchdog.ask());
    answered();

    std::latch held(1), may_go(1);
    struct hold final : remote_message {
        hold(std::latch& h, std::latch& m) : held(h), may_go(m) {}
        void deliver() noexcept override
        {
            held.count_down();
            may_go.wait();
        }
        std::latch& held;
        std::latch& may_go;
    } hangs(held, may_go);
    rt->at(1).reactor().post_remote(hangs);
    held.wait();
    BOOST_TEST(watchdog.ask()); // it had answered before
    for (int i = 0; i < 2; ++i) {
        rt->call(0, [](shard&) {});
        BOOST_TEST(!watchdog.ask());
    }
    may_go.count_down();
    BOOST_TEST(log.count("a shard does not run its tasks") == 1);
    BOOST_TEST(log.count("shard=1") == 1);
    answered();
    BOOST_TEST(watchdog.ask());
    rt->stop();
}

BOOST_AUTO_TEST_CASE(the_longest_silence_is_of_a_shard_that_was_asked_and_has_not_answered)
{
    runtime_options options;
    options.shards = 2;
    auto rt = runtime::start(options).value();
    shard_watchdog watchdog(*rt);
    BOOST_TEST((watchdog.longest_silence() == std::chrono::seconds(0)));
    for (std::size_t i = 0; i < rt->size(); ++i)
        rt->call(i, [](shard&) {});
    std::promise<void> held, may_go;
    std::thread holds([&] {
        rt->call(1, [&](shard&) {
            held.set_value();
            may_go.get_future().wait();
        });
    });
    held.get_future().wait();
    BOOST_TEST((watchdog.longest_silence() == std::chrono::seconds(0))); // it had answered, and is asked anew
    const auto some = std::chrono::milliseconds(2);
    std::this_thread::sleep_for(some);
    rt->call(0, [](shard&) {});
    const auto silent = watchdog.longest_silence();
    BOOST_TEST((silent >= some));
    std::this_thread::sleep_for(some);
    BOOST_TEST((watchdog.longest_silence() >= silent + some)); // since it was asked first
    may_go.set_value();
    holds.join();
    for (std::size_t i = 0; i < rt->size(); ++i)
        rt->call(i, [](shard&) {});
    BOOST_TEST((watchdog.longest_silence() == std::chrono::seconds(0)));
    rt->stop();
}

BOOST_AUTO_TEST_CASE(state_lies_where_systemd_says)
{
    {
        const variable v("STATE_DIRECTORY", "/var/lib/given:/var/lib/other");
        BOOST_TEST(default_state_directory() == "/var/lib/given");
    }
    const variable v("STATE_DIRECTORY", "relative");
    BOOST_TEST(default_state_directory() != "relative");
}

BOOST_AUTO_TEST_CASE(a_state_folder_that_others_could_change_is_told_with_what_mends_it)
{
    std::string name = "/tmp/verbena-state-XXXXXX";
    BOOST_REQUIRE(::mkdtemp(name.data()) != nullptr);
    const auto refusal = [&name] {
        try {
            make_state_directory(name);
        } catch (const start_error& e) {
            return std::string("now: ") + e.what();
        } catch (const config_error& e) {
            return std::string(e.what());
        }
        return std::string();
    };
    const std::string choose = "choose a directory of yours ([daemon] state, --state DIR)";
    for (const mode_t mode : {0770, 0702, 0720}) {
        BOOST_REQUIRE(::chmod(name.c_str(), mode) == 0);
        BOOST_TEST(refusal() ==
                   "state " + name +
                       ": others may write there, and could replace the key of the file handles; "
                       "chmod go-w " +
                       name + ", or " + choose);
    }
    BOOST_REQUIRE(::chmod(name.c_str(), 0755) == 0);
    BOOST_TEST(refusal() == "");
    if (::geteuid() == 0) { // whom a mode holds up is another user
        BOOST_REQUIRE(::chown(name.c_str(), 54321, 54321) == 0);
        BOOST_REQUIRE(::chmod(name.c_str(), 0500) == 0);
        const pid_t child = ::fork();
        if (child == 0) {
            if (::setresuid(54321, 54321, 54321) != 0)
                ::_exit(2);
            try {
                (void)look_at_state_directory(name + "/new/deeper");
                ::_exit(5);
            } catch (const config_error& e) {
                const std::string said = e.what();
                if (said.find("is not there, and can't be made in " + name + " by user 54321") == said.npos)
                    ::_exit(6);
            }
            try {
                (void)look_at_state_directory(name);
            } catch (const config_error& e) {
                const std::string said = e.what();
                ::_exit(said.find("user 54321, as which verbenad runs, may not write there; chmod u+rwx " +
                                  name) != said.npos
                            ? 0
                            : 3);
            }
            ::_exit(4);
        }
        int status = 0;
        BOOST_TEST(::waitpid(child, &status, 0) == child);
        BOOST_TEST(status == 0);
        BOOST_REQUIRE(::chown(name.c_str(), 0, 0) == 0);
        BOOST_REQUIRE(::chmod(name.c_str(), 0755) == 0);
        BOOST_TEST(look_at_state_directory(name));
        BOOST_TEST(!look_at_state_directory(name + "/new/deeper")); // a start makes both
        BOOST_TEST(::access((name + "/new").c_str(), F_OK) != 0);
    }
    if (::geteuid() == 0) { // who else may give it away
        BOOST_REQUIRE(::chown(name.c_str(), 54321, 54321) == 0);
        BOOST_TEST(refusal() == "state " + name +
                                    ": belongs to user 54321, and verbenad runs as user 0; "
                                    "chown it and the files in it, or " +
                                    choose);
    }
    BOOST_TEST(::rmdir(name.c_str()) == 0);
}

BOOST_AUTO_TEST_CASE(what_may_pass_is_told_from_what_can_not_work)
{
    for (const int passes : {EADDRINUSE, ENOSPC, ENOMEM, EMFILE, ENOENT, EIO, EROFS, ENOMEDIUM})
        BOOST_CHECK_THROW(throw_start_failure(error::from_errno(passes, ""), "it"), start_error);
    for (const int stays : {EACCES, EPERM, EINVAL, ENOTDIR})
        BOOST_CHECK_EXCEPTION(
            throw_start_failure(error::from_errno(stays, ""), "it"), config_error,
            [](const config_error& e) { return dynamic_cast<const start_error*>(&e) == nullptr; });
    const setting_place place{"FILE:1:2: "};
    const auto has_place = [](const start_error& e) { return std::string(e.what()) == "FILE:1:2: it"; };
    BOOST_CHECK_EXCEPTION(at_place_of_start(place, [] { throw start_error("it"); }), start_error, has_place);
    BOOST_CHECK_THROW(at_place_of_start({}, [] { throw start_error("it"); }), start_error);
}

BOOST_AUTO_TEST_SUITE_END()
