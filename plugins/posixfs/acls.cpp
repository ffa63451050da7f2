// SPDX-License-Identifier: Apache-2.0
// Access control lists of files: POSIX ACLs, which the kernel keeps as extended attributes, enforces, and keeps in step with the mode.
#include "acls.hpp"

#include "backend.hpp"

#include <array>
#include <sys/xattr.h>

namespace verbena::posixfs {

namespace {

constexpr const char* access_name = "system.posix_acl_access";
constexpr const char* default_name = "system.posix_acl_default";
constexpr std::size_t usual_value = 1024;
constexpr int most_changes = 100; // of a file while its ACL is read

// An empty list where there is none.
result<posix_acl> read_acl(const fd_path& path, const char* name)
{
    const auto parse = [](std::span<const std::byte> value) -> result<posix_acl> {
        auto acl = parse_posix_acl(value);
        if (!acl)
            return error::from_errno(EIO, "the file system gave a POSIX ACL that is none");
        return std::move(*acl);
    };
    std::array<std::byte, usual_value> usual;
    ssize_t n = ::getxattr(path.text(), name, usual.data(), usual.size());
    if (n >= 0)
        return parse(std::span(usual).first(static_cast<std::size_t>(n)));
    if (errno == ERANGE) {
        std::vector<std::byte> large(largest_value);
        n = ::getxattr(path.text(), name, large.data(), large.size());
        if (n >= 0)
            return parse(std::span(large).first(static_cast<std::size_t>(n)));
    }
    if (errno == ENODATA || errno == EOPNOTSUPP)
        return posix_acl();
    return errno_error("getxattr of an ACL");
}

} // namespace

bool has_acls(int fd) noexcept { return ::fgetxattr(fd, access_name, nullptr, 0) >= 0 || errno == ENODATA; }

namespace {

result<posix_acls> read_acls(int fd, const struct stat& st)
{
    const fd_path path(fd);
    auto access = S_ISLNK(st.st_mode) ? result<posix_acl>(posix_acl()) : read_acl(path, access_name);
    if (!access)
        return access.error();
    posix_acls acls;
    acls.access = access->empty() ? posix_acl_of(st.st_mode) : std::move(*access);
    if (S_ISDIR(st.st_mode)) {
        auto passed_on = read_acl(path, default_name);
        if (!passed_on)
            return passed_on.error();
        acls.inherited = std::move(*passed_on);
    }
    return acls;
}

} // namespace

result<posix_acls> posix_acls_of(int fd, struct stat& st)
{
    if (file_status(fd, st) != 0)
        return errno_error("fstat");
    // Mode and lists are read one by one. The group's bits of a mode are the mask's where there is a list, and must not be taken
    // for the group's because that list went meanwhile.
    for (int changes = 0; changes < most_changes; ++changes) {
        auto acls = read_acls(fd, st);
        if (!acls)
            return acls.error();
        const struct stat before = st;
        if (file_status(fd, st) != 0)
            return errno_error("fstat");
        if (st.st_mode == before.st_mode && st.st_ctim.tv_sec == before.st_ctim.tv_sec &&
            st.st_ctim.tv_nsec == before.st_ctim.tv_nsec)
            return acls;
    }
    return error::from_errno(EAGAIN, "the file changes while its ACL is read");
}

result<storage::access_list> acl_of(int fd)
{
    struct stat st{};
    const auto acls = posix_acls_of(fd, st);
    if (!acls)
        return acls.error();
    return to_nfs4(*acls, S_ISDIR(st.st_mode));
}

result<posix_acls> acls_to_set(const struct stat& st, std::span<const storage::ace> list)
{
    if (S_ISLNK(st.st_mode))
        return error::from_errno(EOPNOTSUPP, "an ACL of a symbolic link");
    return to_posix(list, S_ISDIR(st.st_mode));
}

result<void> set_acls(int fd, const struct stat& st, const posix_acls& acls)
{
    const fd_path path(fd);
    const auto set = [&path](const char* name, const posix_acl& acl) {
        const std::vector<std::byte> value = encode_posix_acl(acl);
        return ::setxattr(path.text(), name, value.data(), value.size(), 0) == 0;
    };
    const auto set_inherited = [&](const posix_acl& acl) {
        return acl.empty() ? ::removexattr(path.text(), default_name) == 0 || errno == ENODATA
                           : set(default_name, acl);
    };
    posix_acl before;
    if (S_ISDIR(st.st_mode)) {
        auto found = read_acl(path, default_name);
        if (!found)
            return found.error();
        before = std::move(*found);
        if (!set_inherited(acls.inherited))
            return errno_error("setxattr of a default ACL");
    }
    if (!set(access_name, acls.access)) {
        const int failed = errno;
        if (S_ISDIR(st.st_mode))
            set_inherited(before);
        return error::from_errno(failed, "setxattr of an ACL");
    }
    return {};
}

task<result<storage::access_list>> backend::getacl(const storage::request& r, const storage::handle& file)
{
    shard& s = at(co_await this_reactor());
    auto opened = co_await open_live(s, file);
    if (!opened)
        co_return opened.error();
    const file_ref f = std::move(*opened);
    auto job = [fd = f->path.get(), &who = r.who]() -> result<storage::access_list> {
        const acting_as as(who);
        if (!as)
            return as.error();
        return acl_of(fd);
    };
    co_return co_await pool_.try_run(std::move(job));
}

} // namespace verbena::posixfs
