// SPDX-License-Identifier: Apache-2.0
// LOCK, LOCKT and LOCKU of files that processes of this host lock, too. With raw COMPOUNDs over posixfs.
#include "../lines_of_log.hpp"
#include "../plugins/temporary_directory.hpp"
#include "busy_threads.hpp"
#include "nfs4_called_client.hpp"
#include "nfs4_v40_client.hpp"

#include <verbena/plugins/posixfs.hpp>
#include <verbena/protocols/storage/gated_backend.hpp>
#include <verbena/protocols/storage/local_locks.hpp>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <utility>

BOOST_AUTO_TEST_SUITE(nfs4_local_locks_test)

using namespace verbena;
using namespace verbena::test;

namespace {

const auto minors = boost::unit_test::data::make({0u, 1u, 2u});

/// Another open file description: to the kernel, another process.
class local_process {
public:
    explicit local_process(const std::filesystem::path& path)
        : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666))
    {
        BOOST_REQUIRE(fd_ >= 0);
    }
    local_process(const local_process&) = delete;
    ~local_process() { ::close(fd_); }
    bool lock(off_t first, off_t length, short type)
    {
        struct flock wanted{};
        wanted.l_type = type;
        wanted.l_whence = SEEK_SET;
        wanted.l_start = first;
        wanted.l_len = length;
        return ::fcntl(fd_, F_OFD_SETLK, &wanted) == 0;
    }

private:
    const int fd_;
};

/// Two exports of one folder, and one client.
struct fixture : v40_fixture {
    explicit fixture(std::uint32_t minor_version)
    {
        shard->add(threads);
        posixfs::posixfs_options o;
        o.root = directory.path();
        o.leases = false;
        o.local_locks = true;
        const std::filesystem::path path = directory.path() / "f";
        local.emplace(path);
        std::filesystem::permissions(path, std::filesystem::perms(0666));
        for (std::size_t i = 0; i < on_disk.size(); ++i) {
            auto made = posixfs::open_posixfs(o, work);
            BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
            on_disk[i] = std::move(*made);
            options[i].backend = on_disk[i].get();
        }
        way = channel;
        start();
        tend();
        minor = minor_version;
        if (minor == 0) {
            client.emplace(*this, "client");
            client->connect();
            auto made = client->open(client->opening("f", share4::access_both));
            if ((made.rflags & open4_result::confirm) != 0)
                made.id = client->confirm(made).open_stateid;
            BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
            id = made.id;
            handle = made.handle;
        } else {
            modern.connect();
            give_back_channel();
            const auto made = modern.open(modern.opening("f"));
            BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
            id = made.id;
            handle = made.handle;
        }
    }
    ~fixture()
    {
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
        program.reset();
        commons.reset();
        for (auto& one : on_disk)
            one.reset();
        work.finish();
        threads.unlink();
    }
    /// Another session, over which the client can be called.
    void give_back_channel()
    {
        CREATE_SESSION4args args = client4::session_of(modern.id, modern.create_sequence++);
        args.flags = create_session4::conn_back_chan;
        args.cb_program = 0x40000000;
        const callback_sec_parms4 none;
        args.sec_parms = std::span(&none, 1);
        answer4 made = compound(args);
        modern.session = made.good<CREATE_SESSION4res>().sessionid;
        modern.sequences.clear();
    }
    PUTFH4args at() const { return {std::span<const std::byte>(handle)}; }
    template<class... Args>
    answer4 by(const Args&... args)
    {
        if (minor == 0)
            return compound(args...);
        answer4 out = compound(modern.sequence(), args...);
        out.good<SEQUENCE4res>();
        return out;
    }
    template<class Res, class Args>
    Res send(const Args& args)
    {
        last.emplace(by(at(), args));
        last->good<PUTFH4res>();
        return last->take<Res>();
    }
    LOCK4res lock(std::uint64_t offset, std::uint64_t length, nfs_lock_type4 type = nfs_lock_type4::write)
    {
        LOCK4args args;
        if (minor == 0)
            args = client->locking({nfsstat4::ok, id, handle, 0, {}}, offset, length);
        args.locktype = type;
        args.offset = offset;
        args.length = length;
        args.locker.new_lock_owner = true;
        args.locker.open_stateid = id;
        args.locker.lock_owner.owner = bytes_of("owner");
        return send<LOCK4res>(args);
    }
    nfsstat4 lock_again(const stateid4& locked, std::uint64_t offset, std::uint64_t length,
                        nfs_lock_type4 type)
    {
        LOCK4args args;
        args.locktype = type;
        args.offset = offset;
        args.length = length;
        args.locker.lock_stateid = locked;
        args.locker.lock_seqid = minor == 0 ? 1 : 0;
        return send<LOCK4res>(args).status;
    }
    LOCKT4res test(std::uint64_t offset, std::uint64_t length)
    {
        LOCKT4args args;
        args.locktype = nfs_lock_type4::write;
        args.offset = offset;
        args.length = length;
        if (minor == 0)
            args.owner.clientid = client->id;
        args.owner.owner = bytes_of("owner");
        return send<LOCKT4res>(args);
    }
    nfsstat4 unlock(const stateid4& locked, std::uint64_t offset, std::uint64_t length)
    {
        return by(at(), LOCKU4args{nfs_lock_type4::write, minor == 0 ? 1u : 0u, locked, offset, length})
            .status();
    }
    nfsstat4 close()
    {
        CLOSE4args args;
        args.open_stateid = id;
        if (minor == 0)
            args.seqid = ++client->seqid;
        return by(at(), args).status();
    }
    static std::string owner_of(const LOCK4denied& denied)
    {
        return {reinterpret_cast<const char*>(denied.owner.owner.data()), denied.owner.owner.size()};
    }

    busy_threads threads;
    suite::temporary_directory directory;
    blocking_pool work{2};
    std::array<std::unique_ptr<storage::file_backend>, 2> on_disk;
    std::optional<local_process> local;
    std::shared_ptr<called_client> channel = std::make_shared<called_client>(pool);
    std::optional<client0> client;
    client4 modern{*this, "client"};
    std::optional<answer4> last; // views point into it
    stateid4 id;
    std::vector<std::byte> handle;
};

} // namespace

namespace {

class failing_locks final : public storage::local_locks {
public:
    explicit failing_locks(const int& failed) noexcept : failed_(failed) {}
    task<result<std::optional<storage::local_holder>>> lock(storage::lock_range, std::uint64_t) override
    {
        co_return error::from_errno(failed_, "a lock");
    }
    task<result<std::optional<storage::local_holder>>> test(storage::lock_range) override
    {
        co_return error::from_errno(failed_, "a test");
    }
    void keep(std::uint64_t, std::uint64_t, std::span<const storage::lock_range>) override {}
    task<void> settle() override { co_return; }

private:
    const int& failed_;
};

/// The file system says `failed` of each lock.
struct failing_files final : storage::gated_backend {
    using gated_backend::gated_backend;
    bool gates(storage::operation) const noexcept override { return false; }
    task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
    {
        co_return result<void>();
    }
    std::unique_ptr<storage::local_locks> local_locks_of(const storage::handle&) override
    {
        return std::make_unique<failing_locks>(failed);
    }
    int failed = 0;
};

struct fails_to_lock : nfs4_fixture {
    fails_to_lock()
    {
        options[0].backend = &failing;
        client.connect();
    }
    failing_files failing{*files};
    client4 client{*this, "client"};
};

} // namespace

BOOST_FIXTURE_TEST_CASE(what_the_file_system_can_not_say_of_a_lock_has_an_answer_of_its_own, fails_to_lock)
{
    const auto file = client.open(client.creating("f"));
    LOCK4args lock;
    lock.locktype = nfs_lock_type4::write;
    lock.length = 10;
    lock.locker.new_lock_owner = true;
    lock.locker.open_stateid = file.id;
    lock.locker.lock_owner.owner = bytes_of("owner");
    LOCKT4args test;
    test.locktype = nfs_lock_type4::write;
    test.length = 10;
    test.owner.owner = bytes_of("another owner");
    const PUTFH4args at{client4::handle_of(file)};
    for (const auto& [failed, answer] : {std::pair(ESTALE, nfsstat4::stale), std::pair(EIO, nfsstat4::io),
                                         std::pair(ETIMEDOUT, nfsstat4::delay)}) {
        failing.failed = failed;
        BOOST_TEST(client.call(at, lock).status() == answer);
        BOOST_TEST(client.call(at, test).status() == answer);
    }
}

BOOST_DATA_TEST_CASE(a_lock_is_one_of_the_file_system, minors, minor_version)
{
    fixture f(minor_version);
    const LOCK4res held = f.lock(0, 10);
    BOOST_TEST_REQUIRE(held.status == nfsstat4::ok);
    BOOST_TEST(!f.local->lock(9, 1, F_RDLCK));
    BOOST_TEST(f.local->lock(10, 10, F_WRLCK));
    BOOST_TEST(f.unlock(held.lock_stateid, 0, 5) == nfsstat4::ok);
    BOOST_TEST(f.local->lock(0, 5, F_WRLCK));
    BOOST_TEST(!f.local->lock(5, 1, F_RDLCK));
    // What the client hears of as closed is unlocked.
    BOOST_TEST(f.close() == nfsstat4::ok);
    BOOST_TEST(f.local->lock(0, 0, F_WRLCK));
    BOOST_TEST(f.commons->state.stats().files.value() == 0);
}

BOOST_DATA_TEST_CASE(a_local_lock_denies_lock_and_lockt, minors, minor_version)
{
    fixture f(minor_version);
    BOOST_REQUIRE(f.local->lock(5, 10, F_WRLCK));
    const LOCKT4res tested = f.test(0, 10);
    BOOST_TEST(tested.status == nfsstat4::denied);
    BOOST_TEST(tested.denied.offset == 5u);
    BOOST_TEST(tested.denied.length == 10u);
    BOOST_TEST(f.commons->state.stats().lock_states.value() == 0);
    const LOCK4res denied = f.lock(0, 10);
    BOOST_TEST_REQUIRE(denied.status == nfsstat4::denied);
    BOOST_TEST(denied.denied.offset == 5u);
    BOOST_TEST(denied.denied.length == 10u);
    BOOST_CHECK(denied.denied.locktype == nfs_lock_type4::write);
    BOOST_TEST(denied.denied.owner.clientid == 0u);
    BOOST_TEST(fixture::owner_of(denied.denied) == "local process");
    BOOST_TEST(f.test(0, 5).status == nfsstat4::ok);
    BOOST_REQUIRE(f.local->lock(5, 10, F_UNLCK));
    BOOST_TEST(f.lock(0, 10).status == nfsstat4::ok);
    BOOST_TEST(f.commons->state.stats().local_lock_denials.value() == 1u);
}

// Who waits hears by CB_NOTIFY_LOCK when a local process has unlocked.
BOOST_AUTO_TEST_CASE(a_waiter_hears_of_a_local_unlock)
{
    fixture f(1);
    BOOST_REQUIRE(f.local->lock(0, 10, F_RDLCK));
    BOOST_TEST(f.lock(0, 10, nfs_lock_type4::writew).status == nfsstat4::denied);
    BOOST_TEST(f.commons->state.stats().lock_waiters.value() == 1);
    f.pass(500ms);
    BOOST_TEST(f.channel->calls.empty());
    BOOST_REQUIRE(f.local->lock(0, 10, F_UNLCK));
    for (int i = 0; i < 10'000 && f.channel->calls.empty(); ++i)
        f.pass(10ms);
    BOOST_TEST_REQUIRE(f.channel->calls.size() == 1u);
    BOOST_CHECK(f.channel->calls[0].operation == nfs_cb_opnum4::notify_lock);
    BOOST_TEST(f.channel->calls[0].owner == "owner");
    BOOST_TEST(f.lock(0, 10, nfs_lock_type4::writew).status == nfsstat4::ok);
    BOOST_TEST(!f.local->lock(0, 1, F_RDLCK));
}

BOOST_AUTO_TEST_CASE(another_export_of_the_tree_is_another_client)
{
    fixture f(2);
    const LOCK4res held = f.lock(0, 10);
    BOOST_TEST_REQUIRE(held.status == nfsstat4::ok);
    client4 other(f, "other");
    other.connect();
    answer4 opened = other.call(PUTROOTFH4args(), LOOKUP4args{"deep"}, LOOKUP4args{"other"},
                                other.opening("f"), GETFH4args());
    opened.good<PUTROOTFH4res>();
    opened.good<LOOKUP4res>();
    opened.good<LOOKUP4res>();
    LOCK4args args;
    args.locker.open_stateid = opened.good<OPEN4res>().stateid;
    const auto handle = opened.good<GETFH4res>().object;
    const std::vector<std::byte> there(handle.begin(), handle.end());
    args.locktype = nfs_lock_type4::read;
    args.offset = 9;
    args.length = 10;
    args.locker.new_lock_owner = true;
    args.locker.lock_owner.owner = bytes_of("owner");
    const PUTFH4args at{std::span<const std::byte>(there)};
    BOOST_TEST(other.call(at, args).status() == nfsstat4::denied);
    BOOST_TEST(f.unlock(held.lock_stateid, 9, 1) == nfsstat4::ok);
    BOOST_TEST(other.call(at, args).status() == nfsstat4::ok);
    BOOST_TEST(!f.local->lock(9, 1, F_WRLCK));
    BOOST_TEST(f.close() == nfsstat4::ok);
    BOOST_TEST(f.local->lock(0, 9, F_WRLCK));
    BOOST_TEST(!f.local->lock(9, 1, F_WRLCK));
    BOOST_TEST(f.lock(0, 1).status == nfsstat4::bad_stateid);
}

// Nobody tells the server that a local process waits for what such a client has locked.
BOOST_DATA_TEST_CASE(a_client_that_has_died_keeps_no_local_process_out, minors, minor_version)
{
    fixture f(minor_version);
    BOOST_TEST_REQUIRE(f.lock(0, 10).status == nfsstat4::ok);
    const verbena::test::lines_of_log lines;
    f.clock.advance(200s);
    bool is_free = false;
    for (int i = 0; i < 10'000 && !is_free; ++i) {
        f.pass(10ms);
        is_free = f.local->lock(0, 10, F_WRLCK);
    }
    BOOST_TEST(is_free);
    BOOST_TEST(f.commons->state.stats().expired_clients.value() == 1u);
    BOOST_TEST(lines.count({"warning nfs: a client lost what it had", " name=",
                            " client=127.0.0.1 opens=1 locks=1 delegations=0 silent_seconds="}) == 1u);
}

// A write lock that becomes one to read is that to local processes, too, when the client hears of it.
BOOST_DATA_TEST_CASE(a_downgrade_lets_local_processes_read, minors, minor_version)
{
    fixture f(minor_version);
    const LOCK4res held = f.lock(0, 10);
    BOOST_TEST_REQUIRE(held.status == nfsstat4::ok);
    BOOST_TEST(!f.local->lock(0, 5, F_RDLCK));
    BOOST_TEST_REQUIRE(f.lock_again(held.lock_stateid, 0, 10, nfs_lock_type4::read) == nfsstat4::ok);
    BOOST_TEST(f.local->lock(0, 5, F_RDLCK));
}

// A client that is gone leaves no lock behind.
BOOST_DATA_TEST_CASE(the_end_of_a_client_unlocks, minors, minor_version)
{
    fixture f(minor_version);
    BOOST_TEST_REQUIRE(f.lock(0, 10).status == nfsstat4::ok);
    verbena::files::client_book& book = f.commons->state.clients();
    const auto lapsed = [&] {
        f.clock.advance(200s);
        return book.lapsed();
    }();
    BOOST_TEST_REQUIRE(lapsed.size() == 1u);
    BOOST_REQUIRE(run_until_complete(*f.shard, book.revoke_client(lapsed[0])));
    // Nobody waits for the file system then.
    bool is_free = false;
    for (int i = 0; i < 100'000 && !is_free; ++i) {
        f.turns(1);
        is_free = f.local->lock(0, 10, F_WRLCK);
    }
    BOOST_TEST(is_free);
}

BOOST_AUTO_TEST_SUITE_END()
