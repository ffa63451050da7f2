// SPDX-License-Identifier: Apache-2.0
// A posixfs daemon in a child process that has given up some of root's rights.
#pragma once

#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <linux/capability.h>
#include <memory>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace suite {

using namespace verbena;
using namespace verbena::storage;

constexpr uid_t daemon_uid = 500;
inline int failures = 0;

inline void check(bool ok, const char* what)
{
    if (!ok) {
        std::fprintf(stderr, "not so: %s\n", what);
        ++failures;
    }
}

/// Runs `f` in a child and requires that all its checks held.
template<class F>
void in_child(F f)
{
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
        ::umask(0);
        f();
        std::_Exit(failures == 0 ? 0 : 1);
    }
    int status = 0;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    BOOST_TEST(WIFEXITED(status));
    BOOST_TEST(WEXITSTATUS(status) == 0);
}

inline void become_daemon_user(bool keep_capabilities)
{
    ::prctl(PR_SET_KEEPCAPS, keep_capabilities ? 1 : 0);
    check(::setresgid(daemon_uid, daemon_uid, daemon_uid) == 0, "setresgid");
    check(::setresuid(daemon_uid, daemon_uid, daemon_uid) == 0, "setresuid");
    if (keep_capabilities) {
        __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
        __user_cap_data_struct data[2]{};
        check(::syscall(SYS_capget, &header, data) == 0, "capget");
        data[0].effective = data[0].permitted;
        data[1].effective = data[1].permitted;
        check(::syscall(SYS_capset, &header, data) == 0, "capset");
    }
}

inline void make_secret(const std::filesystem::path& directory)
{
    const int fd = ::open((directory / "secret").c_str(), O_CREAT | O_WRONLY, 0600);
    check(fd >= 0 && ::fchmod(fd, 0600) == 0 && ::write(fd, "x", 1) == 1, "a file of root");
    ::close(fd);
}

inline request user(std::uint32_t uid)
{
    request r;
    r.who = credential(uid, uid);
    return r;
}

struct server {
    explicit server(const posixfs::posixfs_options& o, const reactor_options& how = {})
    {
        auto r = reactor::create(how);
        check(r.has_value(), "a reactor");
        shard = std::move(*r);
        auto opened = posixfs::open_posixfs(o, pool);
        check(opened.has_value(), "the back end opens");
        if (!opened) {
            std::fprintf(stderr, "%s\n", opened.error().message().c_str());
            std::_Exit(1);
        }
        fs = std::move(*opened);
    }
    template<class T>
    result<T> run(task<result<T>> t)
    {
        return run_until_complete(*shard, std::move(t));
    }
    int read(const request& who, const handle& file)
    {
        std::byte out[4];
        auto r = run(fs->read(who, file, 0, out));
        return r ? 0 : r.error().errno_value();
    }
    int write(const request& who, const handle& file)
    {
        const std::byte data[1] = {};
        const std::span<const std::byte> piece(data);
        auto r = run(fs->write(who, file, 0, std::span(&piece, 1), stability::file_sync));
        return r ? 0 : r.error().errno_value();
    }
    std::unique_ptr<reactor> shard;
    blocking_pool pool{3};
    std::unique_ptr<file_backend> fs;
};

} // namespace suite
