// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/file_backend.hpp>

#include <cerrno>

namespace verbena::storage {

namespace {

template<class T>
task<result<T>> unsupported()
{
    co_return error::from_errno(EOPNOTSUPP, "the back end can't do that");
}

} // namespace

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

task<result<std::unique_ptr<file_lease>>> file_backend::lease(const handle&, lease_wanted)
{
    return unsupported<std::unique_ptr<file_lease>>();
}

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
