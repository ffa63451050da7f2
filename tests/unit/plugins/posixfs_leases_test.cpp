// SPDX-License-Identifier: Apache-2.0
// Kernel leases of posixfs: who waits for them, who is told, what of our own stands against one.
#include "backend_fixture.hpp"
#include "daemon_in_child.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>

namespace suite {

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options&)
{
    static temporary_directory unused; // cases open their own
    posixfs::posixfs_options o;
    o.root = unused.path();
    return std::move(*posixfs::open_posixfs(o, pool));
}

/// In memory, and on a disk.
const char* const places[] = {"/dev/shm", "/var/tmp"};

using held = std::unique_ptr<file_lease>;

/// Somebody who has a lease.
struct holder {
    lease_wanted wanted()
    {
        return [this] {
            ++times;
            is_wanted.set();
        };
    }
    task<void> is_told() { (void)co_await is_wanted.wait(); }
    int times = 0;
    event is_wanted;
    held lease; // goes first
};

struct exported : fixture {
    explicit exported(const char* place = "/var/tmp", posixfs::posixfs_options o = {}) : where(place)
    {
        open(std::move(o));
    }
    ~exported() { fs.reset(); } // before the folder
    void open(posixfs::posixfs_options o)
    {
        o.root = where.path();
        auto opened = posixfs::open_posixfs(o, pool);
        BOOST_REQUIRE_MESSAGE(opened, (opened ? std::string() : opened.error().message()));
        fs = std::move(*opened);
    }
    std::string path(const char* name) const { return (where.path() / name).string(); }
    /// A file that nobody has open but perhaps to read.
    handle local_file(const char* name, const char* text = "text")
    {
        const int fd = ::open(path(name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        BOOST_REQUIRE(fd >= 0);
        BOOST_REQUIRE(::write(fd, text, std::strlen(text)) == ssize_t(std::strlen(text)));
        ::close(fd);
        return find(fs->root(), name);
    }
    void take(const handle& file, holder& by)
    {
        auto made = run(fs->lease(file, by.wanted()));
        BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
        by.lease = std::move(*made);
    }
    no_lease refusal(const handle& file)
    {
        auto made = run(fs->lease(file, [] {}));
        BOOST_REQUIRE(!made);
        return why_no_lease(made.error());
    }
    /// 0, or the errno of an open that would not wait.
    int opens(const char* name, int flags) const
    {
        const int fd = ::open(path(name).c_str(), flags | O_NONBLOCK | O_CLOEXEC);
        const int failed = errno;
        if (fd >= 0)
            ::close(fd);
        return fd >= 0 ? 0 : failed;
    }
    /// Descriptors of the process of that file, those for writing alone if so asked.
    std::size_t open_here(const char* name, bool for_writing) const
    {
        std::size_t n = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            if (std::filesystem::read_symlink(entry.path(), gone) != path(name))
                continue;
            const int flags = ::fcntl(std::stoi(entry.path().filename()), F_GETFL);
            n += !for_writing || ((flags & O_PATH) == 0 && (flags & O_ACCMODE) != O_RDONLY) ? 1 : 0;
        }
        return n;
    }
    /// The descriptor that has the lease.
    int lease_descriptor(const char* name) const
    {
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            const int fd = std::stoi(entry.path().filename());
            if (std::filesystem::read_symlink(entry.path(), gone) == path(name) &&
                ::fcntl(fd, F_GETLEASE) == F_RDLCK)
                return fd;
        }
        return -1;
    }
    temporary_directory where;
};

BOOST_AUTO_TEST_SUITE(posixfs_leases_test)

// The first one: what a process may do is found out once, also for its children.
BOOST_AUTO_TEST_CASE(without_the_capability_only_the_daemons_own_files_have_one)
{
    needs_root("to give a right up");
    temporary_directory where("/var/tmp");
    in_child([&] {
        __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
        __user_cap_data_struct data[2]{};
        check(::syscall(SYS_capget, &header, data) == 0, "capget");
        data[CAP_LEASE / 32].effective &= ~(1u << CAP_LEASE % 32);
        check(::syscall(SYS_capset, &header, data) == 0, "capset");
        blocking_pool pool(1);
        auto shard = std::move(*reactor::create());
        posixfs::posixfs_options o;
        o.root = where.path();
        auto fs = std::move(*posixfs::open_posixfs(o, pool));
        check(posixfs::describe(*fs).find("without CAP_LEASE") != std::string::npos, "it says so");
        const auto file = [&](const char* name, uid_t owner) {
            const std::string path = (where.path() / name).string();
            const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
            check(fd >= 0 && ::fchown(fd, owner, owner) == 0, "a file");
            ::close(fd);
            auto found = run_until_complete(*shard, fs->lookup(user(0, 0), fs->root(), name));
            check(found.has_value(), "it is found");
            return found->found.handle;
        };
        const auto own = run_until_complete(*shard, fs->lease(file("own", 0), [] {}));
        check(own.has_value(), "one of its own");
        const auto others = run_until_complete(*shard, fs->lease(file("others", 1000), [] {}));
        check(!others && why_no_lease(others.error()) == no_lease::not_permitted, "none of another's");
    });
}

BOOST_DATA_TEST_CASE(who_writes_locally_is_told_of_and_waits, boost::unit_test::data::make(places), place)
{
    exported e(place);
    BOOST_TEST(e.fs->info().leases);
    const handle file = e.local_file("f");
    holder h;
    e.take(file, h);
    // Readers are in nobody's way.
    BOOST_TEST(e.opens("f", O_RDONLY) == 0);
    BOOST_TEST(e.get(e.me, file) == "text");
    BOOST_TEST(h.times == 0);
    BOOST_TEST(e.opens("f", O_WRONLY) == EWOULDBLOCK);
    e.run(h.is_told());
    // Who waits is let through by the lease's end, and not before.
    std::atomic<bool> passed = false;
    std::thread writer([&] {
        const int fd = ::open(e.path("f").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
        passed = fd >= 0;
        ::close(fd);
    });
    BOOST_TEST(e.opens("f", O_RDWR) == EWOULDBLOCK);
    BOOST_TEST(!passed.load());
    h.lease.reset();
    writer.join();
    BOOST_TEST(passed.load());
    e.shard->turn();
    BOOST_TEST(h.times == 1); // once, whoever asks
    BOOST_TEST(e.opens("f", O_WRONLY) == 0);
}

BOOST_DATA_TEST_CASE(who_cuts_the_file_is_told_of_and_waits, boost::unit_test::data::make(places), place)
{
    exported e(place);
    const handle file = e.local_file("f");
    holder h;
    e.take(file, h);
    std::atomic<int> cut = -1;
    std::thread cutter([&] { cut = ::truncate(e.path("f").c_str(), 0); });
    e.run(h.is_told());
    BOOST_TEST(cut.load() == -1);
    BOOST_TEST(e.stat(file).size == 4u);
    h.lease.reset();
    cutter.join();
    BOOST_TEST(cut.load() == 0);
}

BOOST_DATA_TEST_CASE(what_we_have_open_for_writing_is_closed_first, boost::unit_test::data::make(places),
                     place)
{
    exported e(place);
    // The descriptor of its maker, that of a writer, and that of another one.
    const handle made = e.make_file("made", "text");
    BOOST_TEST(e.open_here("made", true) != 0u);
    holder h;
    e.take(made, h);
    BOOST_TEST(e.open_here("made", true) == 0u);
    const handle local = e.local_file("local");
    BOOST_REQUIRE(::chmod(e.path("local").c_str(), 0666) == 0);
    e.put(e.me, local, 0, "one");
    if (::geteuid() == 0)
        e.put(user(1000, 1000), local, 0, "two");
    BOOST_TEST(e.open_here("local", true) != 0u);
    holder other;
    e.take(local, other);
    BOOST_TEST(e.open_here("local", true) == 0u);
    // What was written is there, and is written again when the lease is back.
    BOOST_TEST(e.get(e.me, made) == "text");
    h.lease.reset();
    e.put(e.me, made, 0, "next");
    BOOST_TEST(e.must(e.fs->commit(e.me, made, 0, 0)).after.has_value());
}

// The watching thread and the pool are not alone then.
BOOST_AUTO_TEST_CASE(other_shards_close_theirs)
{
    temporary_directory where("/var/tmp");
    ::umask(0);
    blocking_pool pool(2);
    posixfs::posixfs_options o;
    o.root = where.path();
    auto opened = posixfs::open_posixfs(o, pool);
    BOOST_REQUIRE(opened);
    std::unique_ptr<file_backend> fs = std::move(*opened);
    runtime_options options;
    options.shards = 3;
    auto started = runtime::start(options);
    BOOST_REQUIRE(started);
    runtime& shards = **started;
    request me;
    me.who = credential(::geteuid(), ::getegid());
    std::atomic<int> failed = 0;
    const auto make = [&](shard&) -> task<handle> {
        auto made = co_await fs->create(me, fs->root(), "f", create_mode::guarded, {}, 0);
        failed += !made;
        co_return made ? made->made.handle : handle();
    };
    const handle file = shards.run(1, make);
    const auto write = [&](shard&) -> task<int> {
        const auto piece = fixture::bytes("text");
        auto written = co_await fs->write(me, file, 0, std::span(&piece, 1), stability::unstable);
        failed += !written;
        co_return 0;
    };
    (void)shards.run(1, write);
    (void)shards.run(2, write);
    const auto lease = [&](shard&) -> task<int> {
        auto made = co_await fs->lease(file, [] {});
        co_return made ? 0 : made.error().errno_value();
    };
    BOOST_TEST(shards.run(0, lease) == 0);
    BOOST_TEST(failed.load() == 0);
    shards.stop();
    fs.reset();
}

BOOST_AUTO_TEST_CASE(what_we_open_for_writing_does_not_wait_for_a_lease_of_ours)
{
    exported e;
    const handle file = e.local_file("f");
    holder h;
    e.take(file, h);
    const auto busy = e.run(e.write(e.me, file, 0, "new"));
    BOOST_REQUIRE(!busy);
    BOOST_TEST(busy.error().errno_value() == EAGAIN); // DELAY, or JUKEBOX
    e.run(h.is_told());
    set_attributes cut;
    cut.size = 0;
    BOOST_TEST(e.fails(e.fs->setattr(e.me, file, cut, std::nullopt)) == EAGAIN);
    BOOST_TEST(e.get(e.me, file) == "text");
    h.lease.reset();
    e.put(e.me, file, 0, "new!");
    BOOST_TEST(e.get(e.me, file) == "new!");
}

BOOST_AUTO_TEST_CASE(a_local_writer_prevents_one)
{
    exported e;
    const handle file = e.local_file("f");
    const int fd = ::open(e.path("f").c_str(), O_WRONLY | O_CLOEXEC);
    BOOST_REQUIRE(fd >= 0);
    BOOST_CHECK(e.refusal(file) == no_lease::in_use);
    ::close(fd);
    holder h;
    e.take(file, h);
    // While somebody waits there is no other one.
    BOOST_TEST(e.opens("f", O_WRONLY) == EWOULDBLOCK);
    BOOST_CHECK(e.refusal(file) == no_lease::in_use);
}

BOOST_AUTO_TEST_CASE(several_have_one_of_a_file)
{
    exported e;
    const handle file = e.local_file("f");
    holder first, second;
    e.take(file, first);
    e.take(file, second);
    BOOST_TEST(e.opens("f", O_WRONLY) == EWOULDBLOCK);
    e.run(first.is_told());
    e.run(second.is_told());
    first.lease.reset();
    BOOST_TEST(e.opens("f", O_WRONLY) == EWOULDBLOCK);
    second.lease.reset();
    BOOST_TEST(e.opens("f", O_WRONLY) == 0);
}

BOOST_AUTO_TEST_CASE(its_holder_may_end_it_when_it_is_told)
{
    exported e;
    const handle file = e.local_file("f");
    const std::size_t before = e.open_here("f", false);
    event told;
    held lease;
    auto made = e.run(e.fs->lease(file, [&] {
        lease.reset();
        told.set();
    }));
    BOOST_REQUIRE(made);
    lease = std::move(*made);
    BOOST_TEST(e.open_here("f", false) == before + 1);
    BOOST_TEST(e.opens("f", O_WRONLY) == EWOULDBLOCK);
    const auto wait = [&]() -> task<void> { (void)co_await told.wait(); };
    e.run(wait());
    BOOST_TEST(e.open_here("f", false) == before);
    BOOST_TEST(e.opens("f", O_WRONLY) == 0);
}

// The message that says so is on its way then.
BOOST_AUTO_TEST_CASE(who_gave_a_lease_back_hears_no_more)
{
    exported e;
    const handle a = e.local_file("a");
    const handle b = e.local_file("b");
    holder first, second;
    e.take(a, first);
    e.take(b, second);
    BOOST_TEST(e.opens("a", O_WRONLY) == EWOULDBLOCK);
    BOOST_TEST(e.opens("b", O_WRONLY) == EWOULDBLOCK);
    first.lease.reset();
    e.run(second.is_told()); // whose signal came later
    BOOST_TEST(first.times == 0);
}

// RLIMIT_SIGPENDING counts the signals that wait, of all of the user's processes; then the kernel sends SIGIO, which says nothing of the descriptor.
BOOST_AUTO_TEST_CASE(a_full_queue_of_signals_keeps_nobody_from_being_told)
{
    exported e;
    holder first, second;
    e.take(e.local_file("a"), first);
    e.take(e.local_file("b"), second);
    rlimit before{};
    BOOST_REQUIRE(::getrlimit(RLIMIT_SIGPENDING, &before) == 0);
    const rlimit none{0, before.rlim_max};
    BOOST_REQUIRE(::setrlimit(RLIMIT_SIGPENDING, &none) == 0);
    // None is queued, as the kernel says to who asks.
    siginfo_t info{};
    info.si_code = SI_QUEUE;
    const long queued = ::syscall(SYS_rt_sigqueueinfo, ::getpid(), SIGRTMIN, &info);
    const int why = errno;
    const int opened = e.opens("b", O_WRONLY);
    BOOST_REQUIRE(::setrlimit(RLIMIT_SIGPENDING, &before) == 0);
    BOOST_TEST_REQUIRE(queued == -1);
    BOOST_TEST(why == EAGAIN);
    BOOST_TEST(opened == EWOULDBLOCK);
    e.run(second.is_told());
    BOOST_TEST(first.times == 0);
}

// A signal is a hint: it may be anybody's, or of what had the descriptor's number before.
BOOST_AUTO_TEST_CASE(a_signal_for_nothing_tells_nobody)
{
    exported e;
    holder first, second;
    e.take(e.local_file("a"), first);
    e.take(e.local_file("b"), second);
    f_owner_ex listener{};
    const int leased = e.lease_descriptor("a");
    BOOST_REQUIRE(::fcntl(leased, F_GETOWN_EX, &listener) == 0);
    BOOST_TEST(listener.type == F_OWNER_TID);
    BOOST_TEST(::fcntl(leased, F_GETSIG) == SIGRTMAX - 4);
    int pair[2];
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    BOOST_REQUIRE(::fcntl(pair[0], F_SETSIG, SIGRTMAX - 4) == 0);
    BOOST_REQUIRE(::fcntl(pair[0], F_SETOWN_EX, &listener) == 0);
    BOOST_REQUIRE(::fcntl(pair[0], F_SETFL, O_ASYNC) == 0);
    BOOST_REQUIRE(::write(pair[1], "x", 1) == 1);
    BOOST_TEST(e.opens("b", O_WRONLY) == EWOULDBLOCK);
    e.run(second.is_told());
    BOOST_TEST(first.times == 0);
    ::close(pair[0]);
    ::close(pair[1]);
}

// They break no lease, and are seen afterwards.
BOOST_AUTO_TEST_CASE(who_changes_what_is_no_data_is_seen)
{
    exported e;
    const auto each = [&](const char* name, auto change) {
        BOOST_TEST_CONTEXT(name)
        {
            holder h, untouched;
            e.take(e.local_file(name), h);
            e.take(e.find(e.fs->root(), "untouched"), untouched);
            BOOST_TEST(change(e.path(name)) == 0);
            e.run(h.is_told());
            BOOST_TEST(h.times == 1);
            BOOST_TEST(untouched.times == 0);
        }
    };
    (void)e.local_file("untouched");
    each("mode", [](const std::string& f) { return ::chmod(f.c_str(), 0600); });
    each("gone", [](const std::string& f) { return ::unlink(f.c_str()); });
    each("renamed", [](const std::string& f) { return ::rename(f.c_str(), (f + "2").c_str()); });
    each("linked", [](const std::string& f) { return ::link(f.c_str(), (f + "2").c_str()); });
}

BOOST_AUTO_TEST_CASE(some_files_have_none)
{
    exported e;
    BOOST_CHECK(e.refusal(e.fs->root()) == no_lease::unsupported);
    BOOST_CHECK(e.refusal(e.make_directory(e.fs->root(), "d")) == no_lease::unsupported);
    posixfs::posixfs_options off;
    off.leases = false;
    exported without("/var/tmp", off);
    BOOST_TEST(!without.fs->info().leases);
    BOOST_CHECK(without.refusal(without.local_file("f")) == no_lease::unsupported);
}

BOOST_AUTO_TEST_CASE(there_are_no_more_than_may_be)
{
    posixfs::posixfs_options two;
    two.most_leases = 2;
    exported e("/var/tmp", two);
    const handle file = e.local_file("f");
    holder first, second;
    e.take(file, first);
    e.take(file, second);
    BOOST_CHECK(e.refusal(file) == no_lease::limit);
    second.lease.reset();
    e.take(file, second);
}

BOOST_AUTO_TEST_CASE(another_signal_can_be_had)
{
    exported plain;
    posixfs::posixfs_options o;
    o.lease_signal = SIGRTMIN + 2;
    exported e("/var/tmp", o);
    const handle file = e.local_file("f");
    holder h;
    e.take(file, h);
    BOOST_TEST(::fcntl(e.lease_descriptor("f"), F_GETSIG) == SIGRTMIN + 2);
    BOOST_TEST(e.opens("f", O_WRONLY) == EWOULDBLOCK);
    e.run(h.is_told());
    for (const int bad : {SIGIO, SIGRTMAX + 1, -1}) {
        o.root = e.where.path();
        o.lease_signal = bad;
        const auto refused = posixfs::open_posixfs(o, e.pool);
        BOOST_REQUIRE(!refused);
        BOOST_TEST(refused.error().errno_value() == EINVAL);
        BOOST_TEST(refused.error().message().find("SIGRTMIN") != std::string::npos);
    }
}

// An embedder's handlers are not touched, and its threads have nothing to block.
BOOST_AUTO_TEST_CASE(signals_of_the_process_are_left_alone)
{
    static std::atomic<int> heard;
    heard = 0;
    struct sigaction ours{}, before{}, io_before{};
    ours.sa_handler = [](int) { ++heard; };
    BOOST_REQUIRE(::sigaction(SIGRTMAX - 4, &ours, &before) == 0);
    BOOST_REQUIRE(::sigaction(SIGIO, &ours, &io_before) == 0);
    {
        exported e;
        holder h;
        e.take(e.local_file("f"), h);
        BOOST_TEST(e.opens("f", O_WRONLY) == EWOULDBLOCK);
        e.run(h.is_told());
        BOOST_TEST(heard.load() == 0);
        BOOST_REQUIRE(::raise(SIGRTMAX - 4) == 0);
        BOOST_TEST(heard.load() == 1);
        BOOST_REQUIRE(::kill(::getpid(), SIGRTMAX - 4) == 0);
        while (heard != 2)
            ::sched_yield();
    }
    BOOST_TEST(heard.load() == 2);
    ::sigaction(SIGRTMAX - 4, &before, nullptr);
    ::sigaction(SIGIO, &io_before, nullptr);
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace suite
