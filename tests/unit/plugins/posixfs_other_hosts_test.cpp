// SPDX-License-Identifier: Apache-2.0
// File systems that ask other hosts, or a process, and may wait for them: a shard never does. They need root's rights to
// open the kernel's handles.
#include <boost/test/unit_test.hpp>

#include "daemon_in_child.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <array>
#include <csignal>
#include <cstddef>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <vector>

using namespace suite;

namespace {

bool claims_to_be_fuse = false;

} // namespace

// In place of libc's: what a file system is.
extern "C" int fstatfs(int fd, struct statfs* st) noexcept
{
    const int done = int(::syscall(SYS_fstatfs, fd, st));
    if (done == 0 && claims_to_be_fuse)
        st->f_type = FUSE_SUPER_MAGIC;
    return done;
}

namespace {

constexpr unsigned cachestat = 451;

/// Ends the process when the calling thread asks a file system anything.
void ask_no_file_system()
{
    struct sigaction report{};
    report.sa_flags = SA_SIGINFO;
    report.sa_sigaction = [](int, siginfo_t* info, void*) {
        std::fprintf(stderr, "not so: the shard makes no system call %d\n", info->si_syscall);
        std::_Exit(1);
    };
    check(::sigaction(SIGSYS, &report, nullptr) == 0, "sigaction");
    std::vector<sock_filter> filter;
    filter.push_back(sock_filter(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, unsigned(offsetof(seccomp_data, nr)))));
    for (const unsigned call : {unsigned(SYS_fstat),
                                unsigned(SYS_newfstatat),
                                unsigned(SYS_statx),
                                unsigned(SYS_fstatfs),
                                unsigned(SYS_openat),
                                unsigned(SYS_openat2),
                                unsigned(SYS_faccessat2),
                                unsigned(SYS_name_to_handle_at),
                                unsigned(SYS_open_by_handle_at),
                                unsigned(SYS_readlinkat),
                                unsigned(SYS_getdents64),
                                unsigned(SYS_pread64),
                                unsigned(SYS_preadv),
                                unsigned(SYS_preadv2),
                                unsigned(SYS_pwrite64),
                                unsigned(SYS_pwritev),
                                unsigned(SYS_pwritev2),
                                unsigned(SYS_ftruncate),
                                unsigned(SYS_fchownat),
                                unsigned(SYS_fchmod),
                                unsigned(SYS_fchmodat),
                                unsigned(SYS_utimensat),
                                unsigned(SYS_mkdirat),
                                unsigned(SYS_unlinkat),
                                unsigned(SYS_renameat),
                                unsigned(SYS_linkat),
                                unsigned(SYS_symlinkat),
                                unsigned(SYS_mknodat),
                                unsigned(SYS_fsync),
                                unsigned(SYS_fdatasync),
                                unsigned(SYS_syncfs),
                                unsigned(SYS_sync),
                                cachestat}) {
        filter.push_back(sock_filter(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1)));
        filter.push_back(sock_filter(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)));
    }
    filter.push_back(sock_filter(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)));
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    check(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    check(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "a seccomp filter");
}

struct nothing_listed final : directory_sink {
    bool take(const directory_entry&) override { return true; }
};

/// All that clients ask, several times, by whoever asks.
void serve_all(server& s, const request& r)
{
    const handle root = s.fs->root();
    std::array<std::byte, 8> memory{};
    const std::span<const std::byte> piece(memory);
    for (int round = 0; round < 3; ++round) {
        set_attributes set;
        set.mode = 0644;
        auto made = s.run(s.fs->create(r, root, "f", create_mode::guarded, set, 0));
        check(made.has_value(), "CREATE");
        const handle f = made->made.handle;
        auto opened = s.run(s.fs->open(r, f, R_OK | W_OK, open_right::asked));
        check(opened.has_value(), "OPEN");
        check(s.run(s.fs->open(r, f, R_OK, open_right::granted)).has_value(), "OPEN of a new file");
        for (int again = 0; again < 2; ++again) {
            check(s.run(s.fs->lookup(r, root, "f")).has_value(), "LOOKUP");
            check(s.run(s.fs->lookup(r, root, ".")).has_value(), "LOOKUP of .");
            check(s.run(s.fs->getattr(r, f)).has_value(), "GETATTR");
            check(s.run(s.fs->access(r, f, R_OK | W_OK)).has_value(), "ACCESS");
            const auto lease = s.run(s.fs->lease(f, [] {}));
            check(!lease && why_no_lease(lease.error()) == no_lease::unsupported, "a lease of none");
            check(s.run(s.fs->write(r, f, 0, std::span(&piece, 1), stability::unstable)).has_value(),
                  "WRITE");
            check(s.run(s.fs->write(r, f, 0, std::span(&piece, 1), stability::file_sync)).has_value(),
                  "WRITE of FILE_SYNC");
            auto read = s.run(s.fs->read(r, f, 0, memory));
            check(read && read->count == memory.size() && read->attrs, "READ");
            auto where = s.run(s.fs->locate(r, f, 0, 8, storage::locatable::memory_or_file));
            check(where && !where->here, "nothing is sent from the page cache");
            auto committed = s.run(s.fs->commit(r, f, 0, 0));
            check(committed && committed->after, "COMMIT");
            set.size = 8;
            check(s.run(s.fs->setattr(r, f, set, std::nullopt)).has_value(), "SETATTR");
        }
        check(s.run(s.fs->mkdir(r, root, "d", {})).has_value(), "MKDIR");
        auto link = s.run(s.fs->symlink(r, root, "s", "target", {}));
        check(link && s.run(s.fs->readlink(r, link->made.handle)).has_value(), "SYMLINK and READLINK");
        check(s.run(s.fs->link(r, f, root, "g")).has_value(), "LINK");
        check(s.run(s.fs->rename(r, root, "g", root, "h")).has_value(), "RENAME");
        for (const bool with_attributes : {false, true}) {
            nothing_listed sink;
            auto listed = s.run(s.fs->readdir(r, root, 0, 0, with_attributes, sink));
            check(listed && listed->directory, "READDIR");
        }
        check(s.run(s.fs->statfs(r, root)).has_value(), "FSSTAT");
        for (const char* name : {"f", "h", "s"})
            check(s.run(s.fs->remove(r, root, name)).has_value(), "REMOVE");
        auto nameless = s.run(s.fs->getattr(r, f));
        check(nameless && nameless->links == 0, "GETATTR of an open file without a name");
        check(s.run(s.fs->open(r, f, R_OK, open_right::asked)).has_value(), "OPEN of it by its handle");
        opened->file.reset();
        nameless = s.run(s.fs->getattr(r, f));
        check(!nameless && nameless.error().errno_value() == ESTALE, "it goes when it is closed");
        check(s.run(s.fs->rmdir(r, root, "d")).has_value(), "RMDIR");
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(a_shard_asks_no_other_host)
{
    needs_root("to act for others");
    temporary_directory directory;
    for (const bool keep : {false, true})
        in_child([&] {
            claims_to_be_fuse = true;
            posixfs::posixfs_options o;
            o.root = directory.path();
            o.handles = posixfs::handle_mode::kernel;
            o.keep_shard_identity = keep;
            server s(o);
            ask_no_file_system();
            serve_all(s, user(0));
            serve_all(s, user(1000));
        });
}

// A path may lead to any mount.
BOOST_AUTO_TEST_CASE(nor_does_it_by_path_with_crossmnt)
{
    needs_root("to act for others");
    for (const char* where : {"/dev/shm", ""}) {
        temporary_directory directory(where);
        in_child([&] {
            posixfs::posixfs_options o;
            o.root = directory.path();
            o.handles = posixfs::handle_mode::path_table;
            o.crossmnt = true;
            server s(o);
            ask_no_file_system();
            serve_all(s, user(0));
        });
    }
}
