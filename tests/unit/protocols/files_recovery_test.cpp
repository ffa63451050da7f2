// SPDX-License-Identifier: Apache-2.0
// The list of clients on the disk: over restarts, kills, losses of power and disks that refuse.
#include "../plugins/temporary_directory.hpp"
#include "files_store.hpp"

#include <verbena/core/module/settings.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/files/recovery_database.hpp>
#include <verbena/protocols/files/state_table.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

/// What a loss of power leaves: files as they were at their last sync, if their names were synced too.
struct disk {
    std::mutex lock;
    bool is_watched = false;
    std::map<std::string, std::string> contents;
    std::set<std::string> names;
    std::atomic<unsigned> syncs{0};
    std::atomic<bool> fails{false};
    std::atomic<bool> kills{false};
};
disk the_disk;

int note_sync(int fd, long call)
{
    if (the_disk.kills)
        ::kill(::getpid(), SIGKILL);
    if (the_disk.fails) {
        errno = EIO;
        return -1;
    }
    const std::lock_guard held(the_disk.lock);
    if (the_disk.is_watched) {
        ++the_disk.syncs;
        const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd));
        if (std::filesystem::is_directory(path)) {
            std::erase_if(the_disk.names,
                          [&](const std::string& name) { return name.starts_with(path.string() + '/'); });
            for (const auto& entry : std::filesystem::directory_iterator(path))
                the_disk.names.insert(entry.path());
        } else {
            std::ifstream in(path, std::ios::binary);
            the_disk.contents[path] = std::string(std::istreambuf_iterator<char>(in), {});
        }
    }
    return int(::syscall(call, fd));
}

} // namespace

// In place of libc's, for SQLite too.
extern "C" int fsync(int fd) { return note_sync(fd, SYS_fsync); }
extern "C" int fdatasync(int fd) { return note_sync(fd, SYS_fdatasync); }

BOOST_AUTO_TEST_SUITE(files_recovery_test)

using namespace verbena;
using namespace verbena::files;
using namespace std::chrono_literals;

namespace {

using keys = std::vector<std::string>;
using kind = recovery_change::kind;

struct started : recovery_start {
    explicit started(recovery_start s) : recovery_start(std::move(s))
    {
        std::sort(reclaimers.begin(), reclaimers.end());
        for (const reclaimer& one : reclaimers)
            names.push_back(one.key);
    }
    keys names;
};

struct database_fixture {
    ~database_fixture()
    {
        the_disk.fails = false;
        the_disk.is_watched = false;
    }
    /// A start.
    started start(duration lease = 90s, std::uint32_t least_epoch = 1)
    {
        database.reset();
        database.emplace(path);
        return started(database->begin(lease, least_epoch));
    }
    result<void> change(kind what, std::string_view key = {}, share keeps_out = share::both)
    {
        return change(*database, what, key, keeps_out);
    }
    static result<void> change(recovery_database& d, kind what, std::string_view key = {},
                               share keeps_out = share::both)
    {
        const recovery_change c(what, key, keeps_out);
        const recovery_change* const one[] = {&c};
        return d.apply(one);
    }
    /// What the constructor or begin() says.
    std::string refusal()
    {
        try {
            (void)start();
        } catch (const config_error& e) {
            return e.what();
        }
        return {};
    }
    bool is_refused_for(const std::string& why, const std::string& cure)
    {
        const std::string said = refusal();
        BOOST_TEST_CONTEXT(said)
        {
            BOOST_TEST(said.find(path) != std::string::npos);
            BOOST_TEST(said.find(why) != std::string::npos);
            BOOST_TEST(said.find(cure) != std::string::npos);
        }
        return !said.empty();
    }
    void sql(const char* text)
    {
        sqlite3* d = nullptr;
        BOOST_REQUIRE(sqlite3_open(path.c_str(), &d) == SQLITE_OK);
        BOOST_REQUIRE(sqlite3_exec(d, text, nullptr, nullptr, nullptr) == SQLITE_OK);
        sqlite3_close(d);
    }
    void write(const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
    /// Ends by SIGKILL, in `f` or after it.
    template<class F>
    void in_killed_child(F f)
    {
        const pid_t child = ::fork();
        BOOST_REQUIRE(child >= 0);
        if (child == 0) {
            f();
            ::kill(::getpid(), SIGKILL);
        }
        int status = 0;
        BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
        BOOST_REQUIRE(WIFSIGNALED(status));
    }

    suite::temporary_directory folder;
    const std::string path = folder.path().string() + "/clients.sqlite";
    std::optional<recovery_database> database;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_first_start_has_nobody, database_fixture)
{
    const started first = start(90s, 1000);
    BOOST_TEST(first.names.empty());
    BOOST_TEST(first.epoch == 1000u);
    BOOST_TEST((first.lease_before == duration()));
    BOOST_TEST(first.started_before == 0u);
    BOOST_TEST((std::filesystem::status(path).permissions() == std::filesystem::perms(0600)));
}

BOOST_FIXTURE_TEST_CASE(who_was_added_may_reclaim_after_the_next_start, database_fixture)
{
    start(90s, 1000);
    const std::string odd("b\0'\xff", 4);
    BOOST_REQUIRE(change(kind::add, "a"));
    BOOST_REQUIRE(change(kind::add, odd));
    BOOST_REQUIRE(change(kind::add, "a")); // again
    BOOST_REQUIRE(change(kind::add, "c"));
    BOOST_REQUIRE(change(kind::remove, "c"));
    BOOST_REQUIRE(change(kind::remove, "d")); // that was never there
    const started second = start(10s, 5);
    BOOST_TEST(second.names == (keys{"a", odd}));
    BOOST_TEST(second.epoch == 1001u); // also if the clock was set back
    BOOST_TEST((second.lease_before == 90s));
    BOOST_TEST(second.started_before == 0u); // by the clock that start is still to come
    BOOST_REQUIRE(change(kind::end_grace));
    const started third = start(10s, 2000);
    BOOST_TEST(third.epoch == 2000u);
    BOOST_TEST(third.started_before == 5u); // and not its epoch
    BOOST_TEST(start(10s, 3000).started_before == 2000u);
}

BOOST_FIXTURE_TEST_CASE(who_does_not_reclaim_in_time_is_dropped, database_fixture)
{
    start();
    BOOST_REQUIRE(change(kind::add, "a"));
    BOOST_REQUIRE(change(kind::add, "b"));
    BOOST_TEST(start().names == (keys{"a", "b"}));
    BOOST_REQUIRE(change(kind::add, "b"));
    BOOST_REQUIRE(change(kind::end_grace));
    // The second edge condition of RFC 8881 8.4.3.
    BOOST_TEST(start().names == keys{"b"});
}

BOOST_FIXTURE_TEST_CASE(a_grace_period_that_did_not_end_begins_anew, database_fixture)
{
    start(90s);
    BOOST_REQUIRE(change(kind::add, "a"));
    BOOST_REQUIRE(change(kind::add, "b"));
    start(5s);
    BOOST_REQUIRE(change(kind::add, "a"));
    BOOST_REQUIRE(change(kind::add, "stranger"));
    const started again = start(5s);
    BOOST_TEST(again.names == (keys{"a", "b"})); // the stranger has got nothing yet
    BOOST_TEST((again.lease_before == 90s));     // whoever was served then hears of a restart within that
    BOOST_TEST(again.started_before == 0u);      // it is not of the start before
    // What was taken from it is taken from both lists.
    BOOST_REQUIRE(change(kind::add, "a"));
    BOOST_REQUIRE(change(kind::remove, "a"));
    BOOST_TEST(start(5s).names == keys{"b"});
    BOOST_REQUIRE(change(kind::add, "b"));
    BOOST_REQUIRE(change(kind::end_grace));
    BOOST_TEST(start(5s).names == keys{"b"});
    BOOST_REQUIRE(change(kind::end_grace));
    start(5s);
    BOOST_TEST((start(5s).lease_before == 5s));
}

BOOST_FIXTURE_TEST_CASE(a_record_says_what_its_client_may_keep_others_from, database_fixture)
{
    using list = std::vector<reclaimer>;
    start();
    BOOST_REQUIRE(change(kind::add, "a", share::none));
    BOOST_REQUIRE(change(kind::add, "b", share::none));
    BOOST_REQUIRE(change(kind::add, "b", share::write));
    BOOST_REQUIRE(change(kind::add, "b", share::none)); // what was said holds
    BOOST_REQUIRE(change(kind::add, "c", share::both));
    BOOST_TEST((start().reclaimers == list{{"a", share::none}, {"b", share::write}, {"c", share::both}}));
    // A grace period that did not end begins anew with the same; a new list says what is so since.
    BOOST_REQUIRE(change(kind::add, "c", share::read));
    BOOST_TEST((start().reclaimers == list{{"a", share::none}, {"b", share::write}, {"c", share::both}}));
    BOOST_REQUIRE(change(kind::add, "c", share::read));
    BOOST_REQUIRE(change(kind::end_grace));
    BOOST_TEST((start().reclaimers == list{{"c", share::read}}));
    // Another client of that name has had nothing yet.
    BOOST_REQUIRE(change(kind::remove, "c"));
    BOOST_REQUIRE(change(kind::add, "c", share::none));
    BOOST_REQUIRE(change(kind::end_grace));
    BOOST_TEST((start().reclaimers == list{{"c", share::none}}));
}

// As the versions before made it.
BOOST_FIXTURE_TEST_CASE(who_was_written_down_before_records_said_so_may_keep_others_from_all,
                        database_fixture)
{
    sql("CREATE TABLE server (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, lease_seconds "
        "INTEGER NOT NULL);"
        "CREATE TABLE clients (owner BLOB PRIMARY KEY) WITHOUT ROWID;"
        "CREATE TABLE reclaiming (owner BLOB PRIMARY KEY) WITHOUT ROWID;"
        "CREATE TABLE clock (id INTEGER PRIMARY KEY CHECK (id = 1), started INTEGER NOT NULL);"
        "INSERT INTO clock VALUES (1, 77); INSERT INTO server VALUES (1, 5, 90); INSERT INTO clients VALUES "
        "(X'61');"
        "PRAGMA application_id=1987207790; PRAGMA user_version=1");
    const started first = start();
    BOOST_TEST((first.reclaimers == std::vector<reclaimer>{{"a", share::both}}));
    BOOST_TEST(first.epoch == 6u);
    BOOST_REQUIRE(change(kind::add, "a", share::none));
    BOOST_REQUIRE(change(kind::end_grace));
    BOOST_TEST((start().reclaimers == std::vector<reclaimer>{{"a", share::none}}));
}

BOOST_FIXTURE_TEST_CASE(changes_are_made_together_or_not_at_all, database_fixture)
{
    start();
    database.reset();
    sql("CREATE TRIGGER t BEFORE INSERT ON clients WHEN NEW.owner = X'62' BEGIN SELECT RAISE(FAIL, 'no'); "
        "END");
    start();
    const recovery_change a(kind::add, "a"), b(kind::add, "b");
    const recovery_change* const both[] = {&a, &b};
    BOOST_TEST(!database->apply(both).has_value());
    BOOST_REQUIRE(change(kind::add, "c")); // it goes on
    BOOST_TEST(start().names == keys{"c"});
}

BOOST_FIXTURE_TEST_CASE(what_was_answered_survives_a_kill, database_fixture)
{
    in_killed_child([this] {
        recovery_database d(path);
        (void)d.begin(90s, 1);
        (void)change(d, kind::add, "a");
        (void)change(d, kind::add, "b");
        (void)change(d, kind::remove, "b");
    });
    BOOST_TEST(start().names == keys{"a"});
    database.reset();
    // In the middle of a change: that is there or not, and all else is.
    in_killed_child([this] {
        recovery_database d(path);
        (void)d.begin(90s, 1);
        the_disk.kills = true;
        (void)change(d, kind::end_grace);
    });
    const started after = start();
    BOOST_TEST((after.names.empty() || after.names == keys{"a"}));
    BOOST_REQUIRE(change(kind::end_grace));
    BOOST_REQUIRE(change(kind::add, "c"));
    BOOST_TEST(start().names == keys{"c"});
}

namespace {

class deaf_handler final : public state_handler {
public:
    void recall(const recall_notice&) noexcept override {}
    void recall_any(client_id, std::size_t) noexcept override {}
    void lock_available(const lock_notice&) noexcept override {}
    time_point last_heard(client_id) noexcept override { return time_point::min(); }
};

} // namespace

// A host (NLM) hears of its first lock when it is written down, so it may take back whatever it has heard of.
BOOST_FIXTURE_TEST_CASE(a_host_that_has_a_lock_survives_a_kill, database_fixture)
{
    const std::string name = "nlm h 192.0.2.1";
    enum class killed { in_the_write, before_the_answer, after_it };
    for (const killed when : {killed::in_the_write, killed::before_the_answer, killed::after_it}) {
        int answers[2];
        BOOST_REQUIRE(::pipe(answers) == 0);
        in_killed_child([&] {
            recovery_database d(path);
            state_options o;
            o.epoch = d.begin(90s, 1).epoch;
            blocking_pool lane(1);
            database_store store(d, lane);
            deaf_handler handler;
            const auto shard = std::move(*reactor::create({}));
            table_commons commons{siphash_key()};
            verbena::test::shard_of place(*shard);
            client_book book(commons, place.here, store, handler, o);
            state_table table(commons, book, 0, place.here, handler);
            owner_lock r;
            r.client = *book.add_host(name);
            r.file = storage::handle(std::as_bytes(std::span("f", 1)));
            r.bytes = {0, 9};
            if (table.lock_by_owner(r))
                (void)!::write(answers[1], "?", 1);
            the_disk.kills = when == killed::in_the_write;
            const auto written = run_until_complete(*shard, book.record(r.client));
            if (when == killed::before_the_answer)
                ::kill(::getpid(), SIGKILL);
            if (written && table.lock_by_owner(r))
                (void)!::write(answers[1], "!", 1);
            ::kill(::getpid(), SIGKILL);
        });
        ::close(answers[1]);
        char answer = 0;
        const auto heard = ::read(answers[0], &answer, 1);
        ::close(answers[0]);
        const started after = start();
        BOOST_TEST(heard == (when == killed::after_it ? 1 : 0));
        BOOST_TEST((heard == 0 || answer == '!'));
        BOOST_TEST((after.names == keys{name} || (when == killed::in_the_write && after.names.empty())));
        BOOST_REQUIRE(change(kind::remove, name));
        BOOST_REQUIRE(change(kind::end_grace));
        database.reset();
    }
}

BOOST_FIXTURE_TEST_CASE(what_was_answered_survives_the_loss_of_power, database_fixture)
{
    the_disk.contents.clear();
    the_disk.names.clear();
    the_disk.is_watched = true;
    start(90s, 70);
    suite::temporary_directory mended;
    unsigned number = 0;
    // Another disk, with what was synced: what a start there finds.
    const auto lose_power = [&] {
        const std::string to = mended.path().string() + "/" + std::to_string(++number);
        std::filesystem::create_directory(to);
        {
            const std::lock_guard held(the_disk.lock);
            for (const auto& [name, text] : the_disk.contents) {
                if (the_disk.names.contains(name))
                    std::ofstream(to + name.substr(folder.path().string().size()), std::ios::binary) << text;
            }
        }
        recovery_database d(to + "/clients.sqlite");
        return started(d.begin(90s, 1));
    };
    BOOST_TEST(lose_power().epoch == 71u); // no epoch is given twice
    BOOST_REQUIRE(change(kind::add, "a"));
    BOOST_TEST(lose_power().names == keys{"a"});
    BOOST_REQUIRE(change(kind::add, "b"));
    BOOST_REQUIRE(change(kind::remove, "a"));
    BOOST_TEST(lose_power().names == keys{"b"});
    BOOST_REQUIRE(change(kind::add, "c", share::none));
    BOOST_TEST((lose_power().reclaimers.back() == reclaimer{"c", share::none}));
    BOOST_REQUIRE(change(kind::add, "c", share::write)); // before it has what it needs that for
    BOOST_TEST((lose_power().reclaimers.back() == reclaimer{"c", share::write}));
    start();
    BOOST_REQUIRE(change(kind::end_grace));
    BOOST_TEST(lose_power().names.empty());
}

BOOST_FIXTURE_TEST_CASE(after_a_failed_sync_nothing_more_is_promised, database_fixture)
{
    start();
    BOOST_REQUIRE(change(kind::add, "a"));
    the_disk.fails = true;
    BOOST_TEST(!change(kind::add, "b").has_value());
    the_disk.fails = false;
    // What the disk has of the log now, nobody knows.
    const auto next = change(kind::add, "c");
    BOOST_REQUIRE(!next);
    BOOST_TEST(next.error().message().find("sync") != std::string::npos);
    const started after = start();
    BOOST_TEST(std::count(after.names.begin(), after.names.end(), "a") == 1);
    BOOST_TEST(std::count(after.names.begin(), after.names.end(), "c") == 0);
}

BOOST_FIXTURE_TEST_CASE(a_full_disk_refuses_and_keeps_what_it_has, database_fixture)
{
    start();
    BOOST_REQUIRE(change(kind::add, "a"));
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    rlimit full = before;
    full.rlim_cur = std::filesystem::file_size(path + "-wal");
    ::setrlimit(RLIMIT_FSIZE, &full);
    const auto refused = change(kind::add, "b");
    ::setrlimit(RLIMIT_FSIZE, &before);
    BOOST_REQUIRE(!refused.has_value());
    BOOST_TEST(refused.error().message() == "disk I/O error: Input/output error");
    BOOST_REQUIRE(change(kind::add, "c")); // there is room again
    BOOST_TEST(start().names == (keys{"a", "c"}));
}

BOOST_FIXTURE_TEST_CASE(what_is_no_database_of_ours_is_refused, database_fixture)
{
    write(std::string(10'000, 'x'));
    BOOST_TEST(is_refused_for("damaged", "move it"));
    std::filesystem::remove(path);
    sql("CREATE TABLE accounts (a)");
    BOOST_TEST(is_refused_for("another program", "move it"));
    std::filesystem::remove(path);
    start();
    database.reset();
    sql("PRAGMA user_version=3");
    BOOST_TEST(is_refused_for("schema 3", "move it"));
    sql("PRAGMA user_version=2");
    BOOST_TEST(refusal().empty());
    database.reset();
    // A page in the middle.
    sql("PRAGMA journal_mode=DELETE");
    const auto size = std::filesystem::file_size(path);
    {
        std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(std::streamoff(size / 2));
        file << std::string(size / 2, '\xee');
    }
    BOOST_TEST(is_refused_for("damaged", "move it"));
}

BOOST_FIXTURE_TEST_CASE(what_cannot_be_written_is_refused, database_fixture)
{
    std::filesystem::create_directory(path);
    BOOST_TEST(is_refused_for("directory", "--state"));
    std::filesystem::remove(path);
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    rlimit full = before;
    full.rlim_cur = 0;
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &full);
    const bool refused = is_refused_for("", "--state");
    ::setrlimit(RLIMIT_FSIZE, &before);
    BOOST_TEST(refused);
}

BOOST_FIXTURE_TEST_CASE(another_daemon_on_the_same_folder_is_refused, database_fixture)
{
    start();
    int ready[2];
    BOOST_REQUIRE(::pipe(ready) == 0);
    database.reset();
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
        recovery_database d(path);
        (void)d.begin(90s, 1);
        (void)!::write(ready[1], "x", 1);
        ::pause();
        ::_exit(0);
    }
    char is_there = 0;
    BOOST_REQUIRE(::read(ready[0], &is_there, 1) == 1);
    BOOST_TEST(is_refused_for("another process", "--state"));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    BOOST_TEST(refusal().empty());
    ::close(ready[0]);
    ::close(ready[1]);
}

// Last: it has threads.
BOOST_FIXTURE_TEST_CASE(changes_that_wait_at_once_are_written_together, database_fixture)
{
    start();
    auto shard = std::move(*reactor::create({}));
    {
        blocking_pool lane(1);
        database_store store(*database, lane);
        unsigned good = 0;
        const auto add = [&](unsigned i) -> task<void> {
            auto done = co_await store.add("client " + std::to_string(i), share::none);
            good += done ? 1 : 0;
        };
        const auto all = [&]() -> task<void> {
            scope clients(*shard);
            for (unsigned i = 0; i < 200; ++i)
                clients.spawn(add, i);
            co_await clients.join();
            auto gone = co_await store.remove("client 7");
            good += gone ? 1 : 0;
        };
        the_disk.is_watched = true;
        the_disk.syncs = 0;
        run_until_complete(*shard, all());
        BOOST_TEST(good == 201u);
        BOOST_TEST(the_disk.syncs < 100u);
        the_disk.is_watched = false;
        the_disk.fails = true;
        const auto refused = run_until_complete(*shard, store.end_grace());
        BOOST_TEST(!refused.has_value());
        the_disk.fails = false;
        lane.finish();
    }
    BOOST_TEST(start().names.size() == 199u);
}

BOOST_AUTO_TEST_SUITE_END()
