// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/file_backend.hpp>

#include <cerrno>
#include <unistd.h>

namespace verbena::storage {

namespace {

template<class T>
task<result<T>> unsupported()
{
    co_return error::from_errno(EOPNOTSUPP, "the back end can't do that");
}

task<result<void>> may_change(file_backend& of, const request* r, const handle* directory)
{
    const auto has = co_await of.access(*r, *directory, W_OK | X_OK);
    if (!has)
        co_return has.error();
    if (*has != (W_OK | X_OK))
        co_return error::from_errno(EACCES, "a change of a directory");
    co_return result<void>();
}

} // namespace

task<result<void>> file_backend::may_remove(const request& r, const handle& directory, std::string_view)
{
    return may_change(*this, &r, &directory);
}

task<result<void>> file_backend::may_rename(const request& r, const handle& from_directory, std::string_view,
                                            const handle& to_directory, std::string_view)
{
    task<result<void>> asking = may_change(*this, &r, &from_directory);
    const auto may = co_await asking;
    if (!may)
        co_return may;
    asking = may_change(*this, &r, &to_directory);
    co_return co_await asking;
}

task<result<opened_file>> file_backend::open(const request& r, const handle& file, unsigned wanted,
                                             open_right right)
{
    const auto attrs = co_await getattr(r, file);
    if (!attrs)
        co_return attrs.error();
    if (attrs->type != file_type::regular)
        co_return error::from_errno(attrs->type == file_type::directory ? EISDIR : EINVAL,
                                    "an open of something that is no regular file");
    if (right == open_right::asked) {
        const auto has = co_await access(r, file, R_OK | W_OK | X_OK);
        if (!has)
            co_return has.error();
        // Who may execute a file may read it, as its kernel has to.
        const bool reads = (wanted & R_OK) == 0 || (*has & (R_OK | X_OK)) != 0;
        const bool writes = (wanted & W_OK) == 0 || (*has & W_OK) != 0;
        if (!reads || !writes)
            co_return error::from_errno(EACCES, "open");
    }
    opened_file out;
    out.file = std::make_shared<const open_file>(r.who, wanted);
    out.attrs = *attrs;
    co_return out;
}

task<result<seek_result>> file_backend::seek(const request&, const handle&, std::uint64_t, extent)
{
    return unsupported<seek_result>();
}

task<result<change>> file_backend::allocate(const request&, const handle&, std::uint64_t, std::uint64_t)
{
    return unsupported<change>();
}

task<result<change>> file_backend::deallocate(const request&, const handle&, std::uint64_t, std::uint64_t)
{
    return unsupported<change>();
}

task<result<copy_result>> file_backend::copy(const request&, const handle&, std::uint64_t, const handle&,
                                             std::uint64_t, std::uint64_t)
{
    return unsupported<copy_result>();
}

task<result<change>> file_backend::clone(const request&, const handle&, std::uint64_t, const handle&,
                                         std::uint64_t, std::uint64_t)
{
    return unsupported<change>();
}

task<result<mapping>> file_backend::map(const request&, const handle&, std::uint64_t, std::uint64_t, map_use)
{
    return unsupported<mapping>();
}

task<result<change>> file_backend::note_written(const request&, const handle&, peer_writes)
{
    return unsupported<change>();
}

task<result<std::vector<std::byte>>> file_backend::getxattr(const request&, const handle&, std::string_view)
{
    return unsupported<std::vector<std::byte>>();
}

task<result<change>> file_backend::setxattr(const request&, const handle&, std::string_view,
                                            std::span<const std::byte>, xattr_mode)
{
    return unsupported<change>();
}

task<result<std::vector<std::string>>> file_backend::listxattrs(const request&, const handle&)
{
    return unsupported<std::vector<std::string>>();
}

task<result<change>> file_backend::removexattr(const request&, const handle&, std::string_view)
{
    return unsupported<change>();
}

task<result<access_list>> file_backend::getacl(const request&, const handle&)
{
    return unsupported<access_list>();
}

// By value, as most of those that override it are coroutines.
task<result<std::unique_ptr<file_lease>>>
file_backend::lease(const handle&, lease_wanted) // NOLINT(performance-unnecessary-value-param)
{
    return unsupported<std::unique_ptr<file_lease>>();
}

std::unique_ptr<local_locks> file_backend::local_locks_of(const handle&) { return nullptr; }

no_lease why_no_lease(const error& failure) noexcept
{
    switch (failure.errno_value()) {
    case EAGAIN: return no_lease::in_use;
    case EACCES:
    case EPERM: return no_lease::not_permitted;
    case EINVAL:
    case ENOSYS:
    case EOPNOTSUPP: return no_lease::unsupported;
    case EMFILE:
    case ENFILE:
    case ENOLCK:
    case ENOMEM: return no_lease::limit;
    default: return no_lease::failed;
    }
}

} // namespace verbena::storage
