// SPDX-License-Identifier: Apache-2.0
// Which file system posixfs syncs, where several are mounted beneath an export.
#include "daemon_in_child.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/task/scope.hpp>

#include <atomic>
#include <sched.h>
#include <sys/mount.h>

namespace {

std::atomic<dev_t> root_device{0};
std::atomic<unsigned> syncs_of_root{0};
std::atomic<unsigned> syncs_of_others{0};
std::atomic<unsigned> syncs_of_all{0};

} // namespace

// In place of libc's: they tell what they were asked for.
extern "C" int syncfs(int fd) noexcept
{
    struct stat st{};
    if (::fstat(fd, &st) != 0)
        return -1;
    ++(st.st_dev == root_device ? syncs_of_root : syncs_of_others);
    return int(::syscall(SYS_syncfs, fd));
}

extern "C" void sync() noexcept
{
    ++syncs_of_all;
    ::usleep(50'000);
}

using namespace suite;

namespace {

task<void> touch(file_backend& fs, const request& who, const handle& file, unsigned& good)
{
    set_attributes set;
    set.mtime.how = set_time::kind::server_time;
    auto done = co_await fs.setattr(who, file, set, std::nullopt);
    good += done ? 1 : 0;
}

task<void> make(file_backend& fs, const request& who, const handle& in, const std::string& name,
                unsigned& good)
{
    auto done = co_await fs.symlink(who, in, name, "target", {});
    good += done ? 1 : 0;
}

/// Touches a device and makes links beside it, all at once.
task<result<unsigned>> all_at_once(file_backend& fs, const request& who, const handle& in,
                                   const handle& device)
{
    unsigned good = 0;
    std::vector<std::string> names;
    for (int i = 0; i < 20; ++i)
        names.push_back("link" + std::to_string(i));
    const task_context& context = co_await current_context();
    scope calls(*context.shard);
    for (const std::string& name : names) {
        calls.spawn([&] { return touch(fs, who, device, good); });
        calls.spawn([&] { return make(fs, who, in, name, good); });
    }
    co_await calls.join();
    co_return good;
}

} // namespace

BOOST_AUTO_TEST_CASE(what_cannot_be_opened_is_synced_with_its_own_file_system)
{
    suite::needs_root("to mount");
    suite::temporary_directory directory;
    for (const bool paths : {true, false}) {
        in_child([&] {
            const std::filesystem::path inner = directory.path() / "inner";
            std::filesystem::create_directory(inner);
            check(::unshare(CLONE_NEWNS) == 0 &&
                      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                      ::mount("none", inner.c_str(), "tmpfs", 0, "size=1m,mode=0777") == 0,
                  "a mount");
            struct stat st{};
            check(::stat(directory.path().c_str(), &st) == 0, "the root");
            root_device = st.st_dev;
            posixfs::posixfs_options o;
            o.root = directory.path();
            o.crossmnt = true;
            o.handles = paths ? posixfs::handle_mode::path_table : posixfs::handle_mode::kernel;
            server s(o);
            const request root = user(0);
            auto entered = s.run(s.fs->lookup(root, s.fs->root(), "inner"));
            check(entered.has_value(), "the mount is entered");
            const handle top = entered->found.handle;
            auto pipe = s.run(s.fs->mknod(root, top, "pipe", file_type::fifo, 0, 0, {}));
            check(pipe.has_value(), "a FIFO is made");
            const auto good = s.run(all_at_once(*s.fs, root, top, pipe->made.handle));
            check(good && *good == 40, "every call succeeds");
            check(syncs_of_root == 0, "the root's file system is let alone");
            // tmpfs has nothing to sync where it is known to be one.
            check((syncs_of_all != 0) == paths, "by path everything is synced");
            check(syncs_of_all < 30, "once for all who wait");
            // Beside it the root's own are synced with it.
            auto outside = s.run(s.fs->mknod(root, s.fs->root(), "pipe", file_type::fifo, 0, 0, {}));
            check(outside.has_value(), "a FIFO is made outside");
            const unsigned before = syncs_of_all;
            unsigned touched = 0;
            auto once = [&]() -> task<result<unsigned>> {
                co_await touch(*s.fs, root, outside->made.handle, touched);
                co_return touched;
            };
            check(s.run(once()).value() == 1, "and touched");
            check(syncs_of_all == before && (!paths || syncs_of_root == 1),
                  "which syncs the root's file system");
        });
        std::filesystem::remove(directory.path() / "pipe");
    }
}
