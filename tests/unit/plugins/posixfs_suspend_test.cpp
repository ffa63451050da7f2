// SPDX-License-Identifier: Apache-2.0
// A file system that posixfs lets go, so that it can be unmounted, and comes back to.
#include <boost/test/unit_test.hpp>

#include "../../../plugins/posixfs/backend.hpp"
#include "daemon_in_child.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/scope.hpp>

#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <sys/stat.h>

using namespace verbena::posixfs;

namespace {

std::atomic<int> syncfs_fails{0};
std::atomic<bool> syncfs_waits{false};
std::atomic<bool> syncfs_is_waiting{false};

} // namespace

extern "C" int syncfs(int fd)
{
    static const auto real = reinterpret_cast<int (*)(int)>(::dlsym(RTLD_NEXT, "syncfs"));
    while (syncfs_waits) {
        syncfs_is_waiting = true;
        ::usleep(1000);
    }
    if (syncfs_fails != 0) {
        errno = syncfs_fails;
        return -1;
    }
    return real(fd);
}

namespace {

using namespace suite;

/// A file system that is mounted at `root`, in a mount namespace of its own.
struct place {
    place()
    {
        check(::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0,
              "a mount namespace of its own");
        check(::mkdir(root.c_str(), 0777) == 0 && ::mkdir(kept.c_str(), 0777) == 0, "folders");
        check(::mount("none", kept.c_str(), "tmpfs", 0, "size=4m,mode=0777") == 0, "a file system");
        options.root = root;
        options.watch = true;
        mount();
    }
    ~place()
    {
        ::umount2(root.c_str(), MNT_DETACH);
        ::umount2(kept.c_str(), MNT_DETACH);
    }
    void mount() const
    {
        check(::mount(kept.c_str(), root.c_str(), nullptr, MS_BIND, nullptr) == 0, "it is mounted");
    }
    /// False where anybody has something open there.
    bool unmount() const { return ::umount(root.c_str()) == 0; }

    temporary_directory directory;
    std::filesystem::path root = directory.path() / "disk", kept = directory.path() / "kept";
    posixfs_options options;
};

struct served : server {
    explicit served(const posixfs_options& o)
        : server(o), tree(*suspension_of(*fs)), by(tree, nullptr, quick(), waiting())
    {
    }
    static suspension::options quick()
    {
        suspension::options o;
        o.lease_patience = {};
        return o;
    }
    // What shards are told comes in their turns. Time goes by so that what hangs ends soon.
    suspension::waiting waiting()
    {
        return {[this] { return now; },
                [this](duration) {
                    ::usleep(1000);
                    now += std::chrono::milliseconds(5);
                    shard->turn();
                }};
    }
    std::string suspend()
    {
        try {
            by.suspend();
            return {};
        } catch (const suspension_failure& e) {
            return e.what();
        }
    }
    std::string resume()
    {
        try {
            (void)by.resume();
            return {};
        } catch (const suspension_failure& e) {
            return e.what();
        }
    }
    int getattr(const handle& file)
    {
        const auto r = run(fs->getattr(me, file));
        return r ? 0 : r.error().errno_value();
    }
    handle create(const char* name)
    {
        const auto r = run(fs->create(me, fs->root(), name, create_mode::guarded, {}, 0));
        check(r.has_value(), "a file is made");
        return r ? r->made.handle : handle();
    }
    std::shared_ptr<const open_file> open(const handle& file)
    {
        const auto r = run(fs->open(me, file, R_OK | W_OK, open_right::asked));
        check(r.has_value(), "it is open");
        return r ? r->file : nullptr;
    }
    int write_unstably(const handle& file, const char* text)
    {
        const std::span<const std::byte> piece(reinterpret_cast<const std::byte*>(text), std::strlen(text));
        const auto r = run(fs->write(me, file, 0, std::span(&piece, 1), stability::unstable));
        return r ? 0 : r.error().errno_value();
    }
    std::string text_of(const handle& file)
    {
        std::byte out[16];
        const auto r = run(fs->read(me, file, 0, out));
        return r ? std::string(reinterpret_cast<const char*>(out), r->count) : "?";
    }
    const request me = user(0);
    suspendable& tree;
    time_point now{std::chrono::hours(1)};
    suspension by;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

} // namespace

BOOST_AUTO_TEST_CASE(what_is_suspended_can_be_unmounted_and_goes_on_later)
{
    needs_root("to mount");
    in_child([] {
        const place p;
        served s(p.options);
        const handle root = s.fs->root();
        const handle file = s.create("file"), other = s.create("other");
        const auto opened = s.open(file);
        check(s.write_unstably(file, "before") == 0 && s.text_of(other).empty(), "they are in use");
        auto leased = s.run(s.fs->lease(other, [] {}));
        check(leased.has_value(), "there is a lease");
        check(!p.unmount() && errno == EBUSY, "it is busy");
        const std::uint64_t verifier = s.fs->write_verifier();

        check(s.suspend().empty(), "it is suspended");
        check(root_state_of(*s.fs) == root_state::suspended, "which is told");
        check(p.unmount(), "nothing is open there");
        check(s.getattr(root) == ENOMEDIUM && s.getattr(file) == ENOMEDIUM, "clients wait");
        check(s.write_unstably(file, "beneath") == ENOMEDIUM && std::filesystem::is_empty(p.root),
              "nothing is written beneath");
        dynamic_cast<backend&>(*s.fs).look_at_root();
        check(root_state_of(*s.fs) == root_state::suspended, "nobody looks whether it is back");

        p.mount();
        check(s.getattr(file) == ENOMEDIUM, "nor when it is");
        check(s.resume().empty() && root_state_of(*s.fs) == root_state::up, "it is resumed");
        check(s.fs->root() == root && s.text_of(file) == "before", "handles are good again");
        check(s.fs->write_verifier() == verifier, "what was written is there, and is not written again");
        leased->reset();
        check(s.write_unstably(file, "behind") == 0 && s.text_of(file) == "behind", "it goes on");
        check(s.suspend().empty() && p.unmount(), "and once more");
    });
}

BOOST_AUTO_TEST_CASE(a_file_without_a_name_is_not_given_up)
{
    needs_root("to mount");
    in_child([] {
        const place p;
        served s(p.options);
        const handle file = s.create("file");
        auto opened = s.open(file);
        check(s.write_unstably(file, "kept") == 0, "it has something");
        check(::unlink((p.kept / "file").c_str()) == 0, "its name goes");
        const std::string why = s.suspend();
        check(has(why, "files without a name are open") && has(why, (p.root / "file").string()), why.c_str());
        check(root_state_of(*s.fs) == root_state::up && s.text_of(file) == "kept", "it is served as before");
        opened.reset();
        s.shard->turn();
        check(s.suspend().empty() && p.unmount(), "when it is closed it goes");
    });
}

BOOST_AUTO_TEST_CASE(another_file_system_is_not_resumed)
{
    needs_root("to mount");
    in_child([] {
        const place p;
        served s(p.options);
        const handle file = s.create("file");
        const auto opened = s.open(file);
        check(s.suspend().empty() && p.unmount(), "it has gone");
        check(has(s.resume(), "another file system is at"), "what lay beneath");
        check(::mount("none", p.root.c_str(), "tmpfs", 0, "size=1m") == 0, "another one");
        check(has(s.resume(), "another file system is at"), "is not it");
        check(s.getattr(file) == ENOMEDIUM && root_state_of(*s.fs) == root_state::suspended,
              "clients wait on");
        check(p.unmount(), "nothing of it is open");
        p.mount();
        check(s.resume().empty() && s.getattr(file) == 0, "this is it");
    });
}

BOOST_AUTO_TEST_CASE(another_folder_of_it_is_not_resumed)
{
    needs_root("to mount");
    in_child([] {
        place p;
        p.options.root = p.root / "inside";
        check(::mkdir(p.options.root.c_str(), 0777) == 0, "a folder");
        served s(p.options);
        check(s.suspend().empty(), "it is suspended");
        check(::rename(p.options.root.c_str(), (p.root / "before").c_str()) == 0 &&
                  ::mkdir(p.options.root.c_str(), 0777) == 0,
              "another folder is there");
        check(has(s.resume(), "is another directory than was suspended"), "which is not it");
        check(::rmdir(p.options.root.c_str()) == 0, "it goes");
        check(has(s.resume(), "make it again"), "nothing is there");
        check(::rename((p.root / "before").c_str(), p.options.root.c_str()) == 0, "and comes back");
        check(s.resume().empty(), "this is it");
    });
}

BOOST_AUTO_TEST_CASE(a_sync_that_fails_refuses_and_has_clients_write_again)
{
    needs_root("to mount");
    in_child([] {
        const place p;
        served s(p.options);
        const handle file = s.create("file");
        check(s.write_unstably(file, "there") == 0, "it is written");
        const std::uint64_t verifier = s.fs->write_verifier();
        syncfs_fails = EIO;
        check(has(s.suspend(), "could not be synced"), "it is refused");
        syncfs_fails = 0;
        check(s.fs->write_verifier() != verifier, "clients write again");
        check(root_state_of(*s.fs) == root_state::up && s.text_of(file) == "there", "it is served as before");
        check(s.suspend().empty() && p.unmount(), "later it goes");
    });
}

// The kernel says it once, and nobody waits for that sync any more.
BOOST_AUTO_TEST_CASE(a_sync_that_fails_late_has_clients_write_again)
{
    needs_root("to mount");
    in_child([] {
        const place p;
        served s(p.options);
        const handle file = s.create("file");
        check(s.write_unstably(file, "there") == 0, "it is written");
        const std::uint64_t verifier = s.fs->write_verifier();
        syncfs_waits = true;
        int turns = 0;
        suspension by(s.tree, nullptr, served::quick(),
                      {[&] { return s.now; },
                       [&](duration) {
                           ::usleep(1000);
                           // What comes before the sync is not to run out of time, and the test ends where none comes.
                           if (syncfs_is_waiting || ++turns > 60'000)
                               s.now += std::chrono::seconds(5);
                           s.shard->turn();
                       }});
        std::string why;
        try {
            by.suspend();
        } catch (const suspension_failure& e) {
            why = e.what();
        }
        check(has(why, "a sync of its file system has not ended"), why.c_str());
        check(s.fs->write_verifier() == verifier, "nothing is known yet");
        syncfs_fails = EIO;
        syncfs_waits = false;
        for (int i = 0; i < 60'000 && s.fs->write_verifier() == verifier; ++i)
            ::usleep(1000);
        check(s.fs->write_verifier() != verifier, "clients write again");
        syncfs_fails = 0;
        check(s.suspend().empty() && p.unmount(), "later it goes");
    });
}

namespace {

struct hung_lane final : blocking_pool::job {
    void execute() noexcept override
    {
        ++running;
        may_go.wait(false);
    }
    void deliver() noexcept override {}
    std::atomic<int> running{0};
    static inline std::atomic<bool> may_go{false};
};

} // namespace

// A call that waits for the disk is under way: nothing is closed beneath it, and it ends as it would have.
BOOST_AUTO_TEST_CASE(a_call_that_hangs_is_named_and_nothing_is_suspended)
{
    needs_root("to mount");
    in_child([] {
        const place p;
        served s(p.options);
        const handle file = s.create("file");
        const auto opened = s.open(file);
        int failed = -1;
        hung_lane hung[3]; // all threads of the lane
        scope calls(*s.shard);
        const auto call = [&]() -> task<void> {
            auto listing = s.fs->getxattr(s.me, file, "user.none");
            const auto got = co_await listing;
            failed = got ? 0 : got.error().errno_value();
        };
        suspension by(s.tree, nullptr, served::quick(),
                      {[&] { return s.now; },
                       [&](duration) {
                           ::usleep(1000);
                           s.now += std::chrono::milliseconds(500);
                           s.shard->turn();
                       }});
        for (hung_lane& one : hung)
            check(s.pool.submit(one), "the lane hangs");
        calls.spawn(call);
        s.shard->turn();
        // Without a thread of the lane nobody can look for files without names, either.
        std::string why;
        try {
            by.suspend();
        } catch (const suspension_failure& e) {
            why = e.what();
        }
        check(has(why, "has not ended within"), why.c_str());
        check(root_state_of(*s.fs) == root_state::up && failed == -1, "it is served, and the call waits");
        hung_lane::may_go = true;
        hung_lane::may_go.notify_all();
        while (failed == -1) {
            ::usleep(1000);
            s.shard->turn();
        }
        check(failed == ENODATA || failed == EOPNOTSUPP, "the call ends as it would have");
        check(s.suspend().empty() && p.unmount(), "then it goes");
    });
}

BOOST_AUTO_TEST_CASE(calls_under_way_are_counted_and_end_first)
{
    needs_root("to mount");
    in_child([] {
        const place p;
        served s(p.options);
        const handle file = s.create("file");
        std::atomic<int> ended{0};
        hung_lane hung[3];
        hung_lane::may_go = false;
        scope calls(*s.shard);
        const auto call = [&]() -> task<void> {
            auto asking = s.fs->getxattr(s.me, file, "user.none");
            (void)co_await asking;
            ++ended;
        };
        for (hung_lane& one : hung)
            check(s.pool.submit(one), "the lane hangs");
        calls.spawn(call);
        calls.spawn(call);
        s.shard->turn();
        check(s.tree.hold() == std::string(), "it is held");
        s.tree.shut();
        check(!s.tree.calls_under_way().silent.empty(), "the shard has not said yet");
        s.shard->turn();
        const suspendable::calls now = s.tree.calls_under_way();
        check(now.silent.empty() && now.running > 0, "a call is under way");
        check(s.getattr(file) == ENOMEDIUM, "and others wait");
        hung_lane::may_go = true;
        hung_lane::may_go.notify_all();
        while (ended != 2) {
            ::usleep(1000);
            s.shard->turn();
        }
        (void)s.tree.calls_under_way();
        s.shard->turn();
        check(s.tree.calls_under_way().ended(), "all have ended");
        s.tree.unshut();
        s.tree.release();
        check(s.getattr(file) == 0, "it is served");
    });
}
