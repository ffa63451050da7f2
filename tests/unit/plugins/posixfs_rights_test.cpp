// SPDX-License-Identifier: Apache-2.0
// posixfs in daemons with other rights than root's: each case runs in a child process that gives up what
// it should not have. They need root to start from.
#include <boost/test/unit_test.hpp>

#include "daemon_in_child.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <cstddef>
#include <iterator>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <span>
#include <sys/mount.h>
#include <vector>

using namespace suite;

// The kernel drops file capabilities by itself only when fsuid leaves 0; here it does not.
BOOST_AUTO_TEST_CASE(a_daemon_with_file_capabilities_binds_its_callers)
{
    suite::needs_root("to give them up");
    for (const bool keep_shard_identity : {false, true})
        in_child([=] {
            suite::temporary_directory directory;
            make_secret(directory.path());
            become_daemon_user(true);
            posixfs::posixfs_options o;
            o.root = directory.path();
            o.handles = posixfs::handle_mode::kernel;
            o.keep_shard_identity = keep_shard_identity;
            server s(o);
            const request alice = user(1000);
            const handle root = s.fs->root();
            for (int round = 0; round < 3; ++round) {
                auto secret = s.run(s.fs->lookup(alice, root, "secret"));
                check(secret.has_value(), "the secret is found");
                check(s.read(alice, secret->found.handle) == EACCES, "a caller may not read it");
                check(s.write(alice, secret->found.handle) == EACCES, "nor write it");
                check(s.read(user(daemon_uid), secret->found.handle) == EACCES,
                      "nor may the daemon's own user");
                check(s.read(user(0), secret->found.handle) == 0, "root may");
                set_attributes set;
                set.mode = 0666;
                check(!s.run(s.fs->setattr(alice, secret->found.handle, set, std::nullopt)),
                      "nor change its mode");
            }
            set_attributes set;
            set.mode = 0444;
            auto made = s.run(s.fs->create(alice, root, "mine", create_mode::guarded, set, 0));
            check(made.has_value() && made->made.attrs->uid == 1000, "a new file is its maker's");
            check(s.write(alice, made->made.handle) == 0, "the owner writes his read-only file");
            check(s.write(user(1001), made->made.handle) == EACCES, "others don't");
            check(!s.run(s.fs->mknod(alice, root, "dev", file_type::character_device, 1, 3, {})),
                  "no devices");
        });
}

BOOST_AUTO_TEST_CASE(a_daemon_without_capabilities_says_so)
{
    suite::needs_root("to give them up");
    suite::temporary_directory directory; // the child could not remove it
    in_child([&] {
        make_secret(directory.path());
        become_daemon_user(false);
        posixfs::posixfs_options o;
        o.root = directory.path();
        server s(o);
        const std::string says = posixfs::describe(*s.fs);
        check(says.find("everything runs as the daemon's user 500") != says.npos, "whose rights");
        check(says.find("path table") != says.npos, "which handles");
        check(says.find("CAP_DAC_READ_SEARCH") != says.npos, "what is missing");
        const handle root = s.fs->root();
        set_attributes set;
        set.mode = 0600;
        auto made = s.run(s.fs->create(user(1000), root, "mine", create_mode::guarded, set, 0));
        check(made.has_value() && made->made.attrs->uid == daemon_uid, "a new file is the daemon's");
        check(s.write(user(1000), made->made.handle) == 0, "and written");
        for (const bool owner : {true, false}) {
            set_attributes also;
            also.size = 0;
            (owner ? also.uid : also.gid) = 12345;
            auto refused = s.run(s.fs->setattr(user(1000), made->made.handle, also, std::nullopt));
            check(!refused && refused.error().errno_value() == EPERM, "its files can't be given away");
            auto now = s.run(s.fs->getattr(user(1000), made->made.handle));
            check(now && now->size == 1, "and lose nothing by the attempt");
        }
        set_attributes same;
        same.size = 0;
        same.uid = same.gid = daemon_uid;
        same.mode = 0640;
        same.mtime.how = set_time::kind::value;
        auto emptied = s.run(s.fs->setattr(user(1000), made->made.handle, same, std::nullopt));
        check(emptied && emptied->after->size == 0 && emptied->after->mode == 0640,
              "what the daemon's user may all may");
        auto secret = s.run(s.fs->lookup(user(0), root, "secret"));
        check(secret && s.read(user(0), secret->found.handle) == EACCES,
              "the daemon's user can't read root's file");
        o.handles = posixfs::handle_mode::kernel;
        auto refused = posixfs::open_posixfs(o, s.pool);
        check(!refused && refused.error().errno_value() == EPERM, "kernel handles are refused");
    });
}

namespace {

/// What these two say from here on, in all threads.
void filter(unsigned of_setxattr, unsigned of_faccessat2)
{
    const unsigned answers[2] = {SECCOMP_RET_ERRNO | of_setxattr, SECCOMP_RET_ERRNO | of_faccessat2};
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, unsigned(offsetof(seccomp_data, nr))),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setxattr, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_faccessat2, 2, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, answers[0]),
        BPF_STMT(BPF_RET | BPF_K, answers[1]),
    };
    const sock_fprog all{static_cast<unsigned short>(std::size(program)), program};
    check(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &all) == 0, "seccomp");
}

} // namespace

// Of two ACLs within a tick of the kernel's clock the second shows in no attribute. Here none shows: the kernel only says that it
// has set it, and from then on refuses.
BOOST_AUTO_TEST_CASE(who_sets_an_acl_has_the_kernel_asked_again)
{
    suite::needs_root("to be several users");
    suite::temporary_directory directory;
    in_child([&] {
        posixfs::posixfs_options o;
        o.root = directory.path();
        server s(o);
        const request bob = user(1001);
        set_attributes set;
        set.mode = 0644;
        auto made = s.run(s.fs->create(user(0), s.fs->root(), "f", create_mode::guarded, set, 0));
        auto other = s.run(s.fs->create(user(0), s.fs->root(), "g", create_mode::guarded, set, 0));
        check(made && other, "two files");
        if (!made || !other)
            return;
        const handle file = made->made.handle;
        check(s.read(bob, file) == 0, "who may reads");
        filter(0, EACCES);
        check(s.read(bob, file) == 0, "and goes on without a question");
        const ace entry{ace_type::allow, ace_who::owner, 0, ace_right::read_data, 0};
        set = {};
        set.acl = std::span(&entry, 1);
        check(s.run(s.fs->setattr(user(0), other->made.handle, set, std::nullopt)).has_value(), "an ACL");
        check(s.read(bob, file) == 0, "also where another file's rights change");
        check(s.run(s.fs->setattr(user(0), file, set, std::nullopt)).has_value(), "an ACL for the file");
        check(s.read(bob, file) == EACCES, "then the kernel is asked again");
    });
}

namespace {

void keep_capabilities(const std::vector<int>& kept)
{
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    for (const int c : kept)
        data[c / 32].effective |= 1U << (c % 32);
    data[0].permitted = data[0].effective;
    data[1].permitted = data[1].effective;
    check(::syscall(SYS_capset, &header, data) == 0, "capset");
}

} // namespace

// Where callers can't be told apart, each would have the daemon's rights.
BOOST_AUTO_TEST_CASE(more_than_a_plain_users_rights_are_lent_to_nobody_unasked)
{
    suite::needs_root("to give capabilities up");
    suite::temporary_directory directory;
    const auto opens = [&](const std::vector<int>& kept, bool as_root, bool asked) {
        const pid_t child = ::fork();
        BOOST_REQUIRE(child >= 0);
        if (child == 0) {
            if (!as_root)
                become_daemon_user(true);
            keep_capabilities(kept);
            posixfs::posixfs_options o;
            o.root = directory.path();
            o.callers_are_daemon = asked;
            blocking_pool pool(1);
            auto made = posixfs::open_posixfs(o, pool);
            const bool told = made || made.error().errno_value() == EPERM;
            std::_Exit(failures != 0 || !told ? 2 : made ? 1 : 0);
        }
        int status = 0;
        BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
        BOOST_REQUIRE(WIFEXITED(status));
        BOOST_TEST(WEXITSTATUS(status) < 2);
        return WEXITSTATUS(status) == 1;
    };
    const std::vector<int> both = {CAP_SETUID, CAP_SETGID};
    for (const std::vector<int>& kept :
         {std::vector<int>{}, {CAP_SETUID}, {CAP_SETGID, CAP_DAC_OVERRIDE}, {CAP_NET_BIND_SERVICE}}) {
        BOOST_TEST(!opens(kept, true, false));
        BOOST_TEST(opens(kept, true, true));
    }
    for (const int c : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_CHOWN}) {
        BOOST_TEST(!opens({c}, false, false));
        BOOST_TEST(opens({c}, false, true));
        BOOST_TEST(opens({c, CAP_SETUID, CAP_SETGID}, false, false));
    }
    BOOST_TEST(opens(both, true, false));
    BOOST_TEST(opens({}, false, false));
    BOOST_TEST(opens({CAP_NET_BIND_SERVICE}, false, false));
}

// Overlayfs makes no handles unless it is told to (nfs_export), as in a privileged container.
BOOST_AUTO_TEST_CASE(without_file_handles_the_path_table_is_taken)
{
    suite::needs_root("to mount file systems");
    suite::temporary_directory directory;
    in_child([&] {
        check(::unshare(CLONE_NEWNS) == 0 && ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0,
              "a mount namespace of its own");
        const std::string top = directory.path();
        check(::mount("none", top.c_str(), "tmpfs", 0, "size=1m,mode=0777") == 0, "mount tmpfs");
        for (const char* name : {"/lower", "/upper", "/work", "/merged"})
            check(::mkdir((top + name).c_str(), 0777) == 0, "mkdir");
        const std::string options =
            "lowerdir=" + top + "/lower,upperdir=" + top + "/upper,workdir=" + top + "/work";
        const std::string merged = top + "/merged";
        check(::mount("none", merged.c_str(), "overlay", 0, options.c_str()) == 0, "mount overlay");
        posixfs::posixfs_options o;
        o.root = merged;
        {
            server s(o);
            const std::string says = posixfs::describe(*s.fs);
            check(says.find("handles by a path table, good until the daemon ends (this file system") !=
                      says.npos,
                  says.c_str());
            set_attributes set;
            set.mode = 0666;
            auto made = s.run(s.fs->create(user(1000), s.fs->root(), "f", create_mode::guarded, set, 0));
            check(made && made->made.attrs->uid == 1000, "a file is made");
            check(made && s.write(user(1000), made->made.handle) == 0 &&
                      s.read(user(1001), made->made.handle) == 0,
                  "written and read");
        }
        o.handles = posixfs::handle_mode::kernel;
        blocking_pool pool(1);
        check(!posixfs::open_posixfs(o, pool), "kernel handles are refused");
        // The file system beneath has some.
        o.root = top;
        o.handles = posixfs::handle_mode::automatic;
        server s(o);
        check(posixfs::describe(*s.fs).find("handles survive rename and restart;") != std::string::npos,
              "tmpfs has handles");
    });
}

// Needs CAP_SYS_ADMIN for a mount namespace of its own.
BOOST_AUTO_TEST_CASE(mounts_beneath_an_export)
{
    suite::needs_root("to mount file systems");
    suite::temporary_directory directory;
    in_child([&] {
        if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
            check(false, "a mount namespace of its own (run as root with CAP_SYS_ADMIN; in a container: "
                         "--privileged)");
            return;
        }
        const auto inner = directory.path() / "inner";
        check(::mkdir(inner.c_str(), 0777) == 0, "mkdir");
        check(::mount("none", inner.c_str(), "tmpfs", 0, "size=1m,mode=0777") == 0, "mount");
        posixfs::posixfs_options o;
        o.root = directory.path();
        const request root = user(0);
        handle file;
        for (const auto handles : {posixfs::handle_mode::path_table, posixfs::handle_mode::kernel}) {
            o.handles = handles;
            server s(o);
            auto refused = s.run(s.fs->lookup(root, s.fs->root(), "inner"));
            check(!refused && refused.error() == errc::crosses_mount, "a mount is not entered");
        }
        o.handles = posixfs::handle_mode::automatic;
        o.crossmnt = true;
        {
            server s(o);
            auto entered = s.run(s.fs->lookup(root, s.fs->root(), "inner"));
            check(entered.has_value(), "crossmnt enters it");
            const handle top = entered->found.handle;
            auto outer = s.run(s.fs->getattr(root, s.fs->root()));
            check(entered->found.attrs->fsid != outer->fsid, "as another file system");
            auto up = s.run(s.fs->lookup(root, top, ".."));
            check(up && up->found.handle == s.fs->root(), ".. leads out again");
            set_attributes set;
            set.mode = 0666;
            auto made = s.run(s.fs->create(user(1000), top, "f", create_mode::guarded, set, 0));
            check(made.has_value(), "a file is made there");
            file = made->made.handle;
            check(file.bytes().size() <= 18, "12 bytes of the kernel's leave a protocol room in 32");
            // As it was made when keys had 8 bytes.
            std::vector<std::byte> old(file.bytes().begin(), file.bytes().end());
            old[0] = std::byte(2);
            old.insert(old.begin() + 6, 4, std::byte(0));
            auto refuse = s.run(s.fs->getattr(root, handle(old)));
            check(!refuse && refuse.error() == errc::bad_handle, "a handle of an earlier form is none");
            auto link = s.run(s.fs->link(root, file, s.fs->root(), "f"));
            check(!link && link.error().errno_value() == EXDEV, "no link across");
            auto moved = s.run(s.fs->rename(root, top, "f", s.fs->root(), "f"));
            check(!moved && moved.error().errno_value() == EXDEV, "no rename across");
            // Full is an answer like another.
            const std::vector<std::byte> chunk(256 << 10);
            const std::span<const std::byte> piece(chunk);
            int error = 0;
            for (std::uint64_t i = 0; i < 64 && error == 0; ++i) {
                auto w =
                    s.run(s.fs->write(user(1000), file, i << 18, std::span(&piece, 1), stability::unstable));
                error = w ? 0 : w.error().errno_value();
            }
            check(error == ENOSPC, "a full file system says ENOSPC");
        }
        {
            server s(o);
            check(s.run(s.fs->getattr(root, file)).has_value(), "its handles survive a restart");
            check(::mount("none", inner.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, "size=1m") == 0, "remount");
            check(s.write(root, file) == EROFS, "a read-only file system says EROFS");
        }
        {
            check(::umount2(inner.c_str(), MNT_DETACH) == 0, "umount");
            server s(o);
            auto gone = s.run(s.fs->getattr(root, file));
            check(!gone && gone.error().errno_value() == ESTALE, "without the mount they are stale");
        }
    });
}
