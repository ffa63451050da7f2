// SPDX-License-Identifier: Apache-2.0
// What posixfs brings to stable storage before it answers, with and without `async`.
#include "backend_fixture.hpp"
#include "temporary_directory.hpp"

#include <verbena/plugins/posixfs.hpp>

#include <atomic>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

namespace {

std::atomic<unsigned> syncs{0};
bool async = false;

} // namespace

// In place of libc's: they count.
extern "C" int fsync(int fd)
{
    ++syncs;
    return int(::syscall(SYS_fsync, fd));
}
extern "C" int fdatasync(int fd)
{
    ++syncs;
    return int(::syscall(SYS_fdatasync, fd));
}
extern "C" int syncfs(int fd) noexcept
{
    ++syncs;
    return int(::syscall(SYS_syncfs, fd));
}

namespace suite {

// Not beneath TMPDIR, which may be in memory: there nothing is synced.
std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options&)
{
    static temporary_directory exported("/var/tmp");
    struct statfs on{};
    BOOST_REQUIRE(::statfs(exported.path().c_str(), &on) == 0);
    BOOST_REQUIRE_MESSAGE(on.f_type != TMPFS_MAGIC, "/var/tmp is in memory: put it on a disk");
    posixfs::posixfs_options o;
    o.root = exported.path();
    o.async = async;
    auto fs = posixfs::open_posixfs(o, pool);
    BOOST_REQUIRE_MESSAGE(fs, (fs ? std::string() : fs.error().message()));
    return std::move(*fs);
}

} // namespace suite

using namespace suite;

namespace {

/// How many syncs each kind of call made.
std::map<std::string, unsigned> syncs_of_calls()
{
    fixture f;
    std::map<std::string, unsigned> made;
    const auto counted = [&](const char* call, auto&& act) {
        const unsigned before = syncs;
        auto result = act();
        made[call] = syncs - before;
        return result;
    };
    const handle root = f.fs->root();
    const handle file = counted("CREATE", [&] { return f.make_file("file"); });
    set_attributes set;
    set.mode = 0600;
    counted("SETATTR", [&] { return f.must(f.fs->setattr(f.me, file, set, std::nullopt)); });
    counted("WRITE FILE_SYNC", [&] { return f.must(f.write(f.me, file, 0, "x", stability::file_sync)); });
    counted("WRITE DATA_SYNC", [&] { return f.must(f.write(f.me, file, 1, "x", stability::data_sync)); });
    counted("WRITE UNSTABLE", [&] { return f.must(f.write(f.me, file, 2, "x", stability::unstable)); });
    counted("COMMIT", [&] { return f.must(f.fs->commit(f.me, file, 0, 0)); });
    counted("MKDIR", [&] { return f.make_directory(root, "directory"); });
    counted("SYMLINK", [&] { return f.must(f.fs->symlink(f.me, root, "symlink", "file", {})); });
    counted("LINK", [&] { return f.must(f.fs->link(f.me, file, root, "link")); });
    counted("RENAME", [&] { return f.must(f.fs->rename(f.me, root, "link", root, "renamed")); });
    counted("REMOVE", [&] { return f.must(f.fs->remove(f.me, root, "renamed")); });
    counted("RMDIR", [&] { return f.must(f.fs->rmdir(f.me, root, "directory")); });
    f.must(f.fs->remove(f.me, root, "symlink"));
    f.must(f.fs->remove(f.me, root, "file"));
    return made;
}

} // namespace

// RFC 1813 4.8 wants it of the server; only what is unstable may wait for its COMMIT.
BOOST_AUTO_TEST_CASE(what_is_answered_is_stable)
{
    async = false;
    for (const auto& [call, count] : syncs_of_calls())
        BOOST_TEST((count != 0) == (call != "WRITE UNSTABLE"), call << ": " << count);
}

BOOST_AUTO_TEST_CASE(with_async_only_commit_waits)
{
    async = true;
    for (const auto& [call, count] : syncs_of_calls())
        BOOST_TEST((count != 0) == (call == "COMMIT"), call << ": " << count);
}
