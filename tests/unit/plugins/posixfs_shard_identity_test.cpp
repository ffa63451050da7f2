// SPDX-License-Identifier: Apache-2.0
// Shards that keep their credentials, as those of RDMA devices must: who is served on them, and that nobody gets other
// rights by it. Each case runs in a child process with rights of its own; they need root to start from.
#include <boost/test/unit_test.hpp>

#include "../../../plugins/posixfs/identity.hpp"
#include "daemon_in_child.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <array>
#include <cstddef>
#include <grp.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace suite;

namespace {

credential caller(std::uint32_t uid, std::uint32_t gid, std::vector<std::uint32_t> groups = {})
{
    credential who(uid, gid);
    who.set_groups(groups);
    return who;
}

request as(const credential& who)
{
    request r;
    r.who = who;
    return r;
}

/// Ends the process when the calling thread changes its credentials, even to what they are. Impossible ids, by which they
/// are asked for, are let through.
void forbid_changes_of_credentials()
{
    const auto load = [](std::size_t offset) {
        return sock_filter(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, unsigned(offset)));
    };
    const auto skip_unless = [](unsigned value, unsigned char n) {
        return sock_filter(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, n));
    };
    const sock_filter end(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    const sock_filter allow(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    std::vector<sock_filter> filter{load(offsetof(seccomp_data, nr))};
    for (const unsigned call :
         {SYS_capset, SYS_setgroups, SYS_setuid, SYS_setgid, SYS_setresuid, SYS_setresgid}) {
        filter.push_back(skip_unless(call, 1));
        filter.push_back(end);
    }
    for (const unsigned call : {SYS_setfsuid, SYS_setfsgid}) {
        filter.push_back(skip_unless(call, 4));
        filter.push_back(load(offsetof(seccomp_data, args)));
        filter.push_back(skip_unless(0xffffffff, 1));
        filter.push_back(allow);
        filter.push_back(end);
    }
    filter.push_back(allow);
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    check(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    check(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "a seccomp filter");
}

void set_groups(std::vector<gid_t> groups)
{
    check(::setgroups(groups.size(), groups.data()) == 0, "setgroups");
}

/// Root whose rights a caller can have: no groups, and nothing passes quotas.
void become_plain_root()
{
    set_groups({});
    check(posixfs::give_up_resource_rights().has_value(), "CAP_SYS_RESOURCE goes");
}

std::uint64_t effective()
{
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    check(::syscall(SYS_capget, &header, data) == 0, "capget");
    return data[0].effective | std::uint64_t(data[1].effective) << 32;
}

/// Only those that switch to callers: what groups a thread has then makes a difference.
void keep_only_switching()
{
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    data[0].effective = data[0].permitted = 1u << CAP_SETUID | 1u << CAP_SETGID;
    check(::syscall(SYS_capset, &header, data) == 0, "capset");
}

/// By it no write takes long, which would send the next ones to the pool.
struct standing_clock final : clock_source {
    time_point now() const noexcept override { return time_point(std::chrono::hours(1)); }
};

/// Whose shard would die of another's rights.
struct keeping_server : server {
    explicit keeping_server(const posixfs::posixfs_options& o) : server(keeping(o), standing())
    {
        forbid_changes_of_credentials();
    }
    static posixfs::posixfs_options keeping(posixfs::posixfs_options o)
    {
        o.keep_shard_identity = true;
        return o;
    }
    static reactor_options standing()
    {
        static standing_clock clock;
        reactor_options how;
        how.policy =
            wait_policy::event; // another would spin, until a clock that stands still says that it is enough
        how.clock = &clock;
        return how;
    }
    /// Jobs that the pool has done.
    std::uint64_t jobs() const { return shard->stats().remote_messages.load(); }
    /// True if `call` succeeds and nothing of it runs on the pool.
    template<class T>
    bool stays(task<result<T>> call)
    {
        const std::uint64_t before = jobs();
        return run(std::move(call)).has_value() && jobs() == before;
    }
    template<class T>
    bool leaves(task<result<T>> call)
    {
        const std::uint64_t before = jobs();
        return run(std::move(call)).has_value() && jobs() != before;
    }
    task<result<write_result>> put(const request& r, const handle& file)
    {
        const std::byte data{'x'};
        const std::span<const std::byte> piece(&data, 1);
        co_return co_await fs->write(r, file, 0, std::span(&piece, 1), stability::unstable);
    }
    handle file(const request& r, const char* name, std::uint32_t mode)
    {
        set_attributes set;
        set.mode = mode;
        auto made = run(fs->create(r, fs->root(), name, create_mode::unchecked, set, 0));
        check(made.has_value(), "a file is made");
        return made ? made->made.handle : handle();
    }
    unsigned granted(const credential& who, const handle& file, unsigned wanted)
    {
        auto answer = run(fs->access(as(who), file, wanted));
        check(answer.has_value(), "ACCESS is answered");
        return answer ? *answer : 0;
    }
};

posixfs::posixfs_options exporting(const temporary_directory& directory)
{
    posixfs::posixfs_options o;
    o.root = directory.path();
    return o;
}

} // namespace

BOOST_AUTO_TEST_CASE(equal_rights_are_told_from_others)
{
    needs_root("to take other rights");
    const auto same = [](const credential& who) { return posixfs::has_rights_of(who); };
    in_child([&] {
        become_plain_root();
        check((effective() >> CAP_SYS_RESOURCE & 1) == 0, "and is gone");
        check(same(caller(0, 0)), "root is root");
        check(same(caller(0, 0, {0})), "its own group in the list says nothing");
        check(!same(caller(0, 0, {5})), "a group more");
        check(!same(caller(0, 5)), "another group");
        check(!same(caller(0, 5, {0})), "another group first");
        check(!same(caller(5, 0)), "another user");
        check(!same(caller(65534, 65534)), "a squashed root");
        check(posixfs::act_as(caller(1000, 1000)).has_value(), "a switch");
        check(!same(caller(0, 0)), "not while it has another's");
        posixfs::act_as_daemon();
        check(!same(caller(0, 0)), "nor afterwards, for good");
        check(!same(caller(1000, 1000)), "nor for who was served last");
    });
    in_child([&] {
        set_groups({});
        // A container's root may be without it from the start.
        const bool passes_quotas = effective() >> CAP_SYS_RESOURCE & 1;
        check(same(caller(0, 0)) == !passes_quotas, "no caller passes quotas by CAP_SYS_RESOURCE");
    });
    in_child([&] {
        set_groups({7, 5, 0, 7});
        check(posixfs::give_up_resource_rights().has_value(), "CAP_SYS_RESOURCE goes");
        check(same(caller(0, 0, {5, 7})), "order and repeats say nothing");
        check(!same(caller(0, 0)), "groups fewer");
        check(!same(caller(0, 0, {5})), "one fewer");
        check(!same(caller(0, 0, {5, 6})), "as many, others");
        check(!same(caller(0, 0, {5, 6, 7})), "one more");
        check(!same(caller(0, 7, {0, 5})), "the same ones, another first");
    });
    in_child([&] {
        std::vector<gid_t> many;
        for (gid_t g = 1; g <= 40; ++g)
            many.push_back(g);
        set_groups(many);
        check(posixfs::give_up_resource_rights().has_value(), "CAP_SYS_RESOURCE goes");
        check(!same(caller(0, 0, std::vector<std::uint32_t>(many.begin(), many.end()))),
              "more than a caller has");
    });
    in_child([&] {
        set_groups({});
        become_daemon_user(true);
        check(posixfs::give_up_resource_rights().has_value(), "CAP_SYS_RESOURCE goes");
        check(!same(caller(daemon_uid, daemon_uid)), "its user has none of the daemon's capabilities");
        check(!same(caller(0, 0)), "and root has another fsuid");
    });
    in_child([&] {
        set_groups({7});
        become_daemon_user(true);
        keep_only_switching();
        check(same(caller(daemon_uid, daemon_uid, {7})), "a daemon whose capabilities say nothing of files");
        check(!same(caller(daemon_uid, daemon_uid)), "without the group");
        check(!same(caller(daemon_uid, 7, {daemon_uid})), "other group first");
        check(!same(caller(0, 0)) && !same(caller(0, daemon_uid, {7})), "root");
    });
    in_child([&] {
        // Not unshare(): a process with a second thread, as a sanitizer's, may not.
        const auto inner = static_cast<pid_t>(::syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
        check(inner >= 0, "a user namespace of its own");
        if (inner != 0) {
            int status = 0;
            check(::waitpid(inner, &status, 0) == inner && status == 0, "what its process checked");
            return;
        }
        check(!same(caller(65534, 65534, {65534})) && !same(caller(65534, 65534)),
              "ids that have no number here are nobody's");
    });
}

BOOST_AUTO_TEST_CASE(root_is_served_on_its_shard)
{
    needs_root("to serve root");
    temporary_directory directory("/dev/shm");
    struct statfs st{};
    BOOST_REQUIRE(::statfs(directory.path().c_str(), &st) == 0);
    BOOST_REQUIRE(st.f_type == TMPFS_MAGIC);
    in_child([&] {
        become_plain_root();
        keeping_server s(exporting(directory));
        const handle root = s.fs->root();
        for (const request& r : {as(caller(0, 0)), as(caller(0, 0, {0}))}) {
            s.file(r, "warm", 0644); // the root is opened by handle, once
            set_attributes set;
            set.mode = 0644;
            check(s.stays(s.fs->create(r, root, "f", create_mode::guarded, set, 0)), "CREATE");
            const handle f = s.run(s.fs->lookup(r, root, "f"))->found.handle;
            check(s.stays(s.fs->lookup(r, root, "f")), "LOOKUP");
            check(s.stays(s.fs->access(r, f, R_OK | W_OK)), "ACCESS");
            check(s.stays(s.put(r, f)), "WRITE");
            set.mode = 0600;
            check(s.stays(s.fs->setattr(r, f, set, std::nullopt)), "SETATTR");
            check(s.stays(s.put(r, f)), "WRITE after it");
            check(s.stays(s.fs->mkdir(r, root, "d", {})), "MKDIR");
            check(s.stays(s.fs->symlink(r, root, "s", "target", {})), "SYMLINK");
            check(s.stays(s.fs->link(r, f, root, "g")), "LINK");
            check(s.stays(s.fs->rename(r, root, "g", root, "h")), "RENAME");
            for (const char* name : {"f", "h", "s"})
                check(s.stays(s.fs->remove(r, root, name)), "REMOVE");
            check(s.stays(s.fs->rmdir(r, root, "d")), "RMDIR");
            // Whose blocks lie beyond its end, which takes as long.
            const int fd =
                ::open((directory.path() / "b").c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
            check(fd >= 0 && ::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 2 << 20) == 0, "a file of many blocks");
            ::close(fd);
            check(s.leaves(s.fs->remove(r, root, "b")), "REMOVE of many blocks");
        }
    });
}

BOOST_AUTO_TEST_CASE(others_are_served_on_the_pool)
{
    needs_root("to act for others");
    temporary_directory directory("/dev/shm");
    in_child([&] {
        become_plain_root();
        keeping_server s(exporting(directory));
        const handle root = s.fs->root();
        const handle secret = s.file(as(caller(0, 0)), "secret", 0600);
        unsigned number = 0;
        for (const credential& who :
             {caller(1000, 1000), caller(0, 9), caller(0, 0, {9}), caller(65534, 65534)}) {
            const request r = as(who);
            const std::string name = "f" + std::to_string(++number);
            set_attributes set;
            set.mode = 0600;
            for (int round = 0; round < 2; ++round) {
                check(s.leaves(s.fs->create(r, root, name, create_mode::unchecked, set, 0)), "CREATE");
                const auto found = s.run(s.fs->lookup(r, root, name));
                check(found && found->found.attrs->uid == who.uid && found->found.attrs->gid == who.gid,
                      "a new file is its maker's");
                check(s.leaves(s.fs->lookup(r, root, name)), "LOOKUP");
                check(s.leaves(s.fs->access(r, found->found.handle, R_OK)), "ACCESS");
                check(s.leaves(s.put(r, found->found.handle)), "WRITE");
                check(s.read(r, secret) == (who.uid == 0 ? 0 : EACCES), "root's file is root's");
                check(s.write(r, secret) == (who.uid == 0 ? 0 : EACCES), "for writing too");
                check(s.granted(who, secret, R_OK | W_OK) == (who.uid == 0 ? R_OK | W_OK : 0),
                      "as ACCESS says");
                // What root does in between on the shard changes nothing for the others.
                check(s.stays(s.put(as(caller(0, 0)), secret)), "root's WRITE");
                check(s.stays(s.fs->access(as(caller(0, 0)), found->found.handle, R_OK)), "root's ACCESS");
            }
            check(s.leaves(s.fs->remove(r, root, name)), "REMOVE");
        }
    });
}

// Without CAP_DAC_OVERRIDE groups decide, to allow and to deny.
BOOST_AUTO_TEST_CASE(groups_are_the_callers_own)
{
    needs_root("to take other rights");
    temporary_directory directory;
    const auto path = [&](const char* name) { return (directory.path() / name).string(); };
    for (const char* name : {"for-group", "not-for-group"}) {
        const int fd = ::open(path(name).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        BOOST_REQUIRE(fd >= 0);
        BOOST_REQUIRE(::fchown(fd, 0, 7) == 0);
        BOOST_REQUIRE(::fchmod(fd, name[0] == 'f' ? 0060 : 0606) == 0);
        ::close(fd);
    }
    const credential member = caller(daemon_uid, daemon_uid, {7});
    const credential stranger = caller(daemon_uid, daemon_uid);
    const credential other = caller(daemon_uid, daemon_uid, {8});
    for (const bool daemon_is_member : {true, false})
        in_child([&] {
            set_groups(daemon_is_member ? std::vector<gid_t>{7} : std::vector<gid_t>{});
            become_daemon_user(true);
            keep_only_switching();
            keeping_server s(exporting(directory));
            for (int round = 0; round < 3; ++round) {
                const auto find = [&](const char* name) {
                    return s.run(s.fs->lookup(as(member), s.fs->root(), name))->found.handle;
                };
                const handle yes = find("for-group");
                const handle no = find("not-for-group");
                for (const credential& who : {member, stranger, other}) {
                    const bool in_group = who == member;
                    check(s.read(as(who), yes) == (in_group ? 0 : EACCES), "who is in the group reads");
                    check(s.write(as(who), yes) == (in_group ? 0 : EACCES), "and writes");
                    check(s.granted(who, yes, R_OK | W_OK) == (in_group ? R_OK | W_OK : 0), "as ACCESS says");
                    check(s.read(as(who), no) == (in_group ? EACCES : 0), "who is in the group doesn't");
                    check(s.write(as(who), no) == (in_group ? EACCES : 0), "nor writes");
                    check(s.granted(who, no, R_OK | W_OK) == (in_group ? 0 : R_OK | W_OK), "as ACCESS says");
                }
            }
            check(s.stays(s.fs->access(as(daemon_is_member ? member : stranger), s.fs->root(), R_OK)),
                  "the daemon's equal is served on the shard");
            check(s.leaves(s.fs->access(as(daemon_is_member ? stranger : member), s.fs->root(), R_OK)),
                  "the other one isn't");
        });
}

// Set-uid bits fall by the rights of who writes.
BOOST_AUTO_TEST_CASE(set_uid_bits_fall_as_without_rdma)
{
    needs_root("to act for others");
    temporary_directory directory("/dev/shm");
    for (const bool keep : {true, false})
        in_child([&] {
            become_plain_root();
            posixfs::posixfs_options o = exporting(directory);
            o.keep_shard_identity = keep;
            server s(o);
            const handle root = s.fs->root();
            set_attributes set;
            set.mode = 06777;
            for (const credential& who : {caller(1000, 1000), caller(0, 0), caller(0, 0, {9})}) {
                auto made =
                    s.run(s.fs->create(as(caller(1000, 1000)), root, "f", create_mode::guarded, set, 0));
                check(made.has_value(), "a file is made");
                check(s.write(as(who), made->made.handle) == 0, "and written");
                const auto now = s.run(s.fs->getattr(as(who), made->made.handle));
                check(now && (now->mode & 07777) == (who.uid == 0 ? 06777u : 0777u),
                      "root's writes leave them");
                check(s.run(s.fs->remove(as(caller(0, 0)), root, "f")).has_value(), "and removed");
            }
        });
}

// Those on shards and those on pool threads wait for each other, and know of each other's changes.
BOOST_AUTO_TEST_CASE(changes_are_in_one_order)
{
    needs_root("to act for others");
    temporary_directory directory("/dev/shm");
    in_child([&] {
        become_plain_root();
        keeping_server s(exporting(directory));
        set_attributes set;
        set.mode = 0777;
        auto d = s.run(s.fs->mkdir(as(caller(0, 0)), s.fs->root(), "d", set));
        check(d.has_value(), "a directory");
        unsigned number = 0;
        for (const credential& who : {caller(1000, 1000), caller(0, 0), caller(0, 0, {9}), caller(0, 0)}) {
            auto made = s.run(s.fs->create(as(who), d->made.handle, std::to_string(++number),
                                           create_mode::guarded, set, 0));
            check(made && made->directory.before.has_value(), "no change is taken for somebody else's");
        }
    });
}
