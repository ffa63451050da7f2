// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/file_backend.hpp>

#include <cerrno>

namespace verbena::storage {

namespace {

template<class T>
task<result<T>> refuse()
{
    co_return error::from_errno(EOPNOTSUPP, "the back end can't do that");
}

} // namespace

task<result<seek_result>> file_backend::seek(const request&, const handle&, std::uint64_t, extent)
{
    return refuse<seek_result>();
}

task<result<change>> file_backend::allocate(const request&, const handle&, std::uint64_t, std::uint64_t)
{
    return refuse<change>();
}

task<result<change>> file_backend::deallocate(const request&, const handle&, std::uint64_t, std::uint64_t)
{
    return refuse<change>();
}

task<result<copy_result>> file_backend::copy(const request&, const handle&, std::uint64_t, const handle&,
                                             std::uint64_t, std::uint64_t)
{
    return refuse<copy_result>();
}

task<result<change>> file_backend::clone(const request&, const handle&, std::uint64_t, const handle&,
                                         std::uint64_t, std::uint64_t)
{
    return refuse<change>();
}

task<result<std::vector<std::byte>>> file_backend::getxattr(const request&, const handle&, std::string_view)
{
    return refuse<std::vector<std::byte>>();
}

task<result<change>> file_backend::setxattr(const request&, const handle&, std::string_view,
                                            std::span<const std::byte>, xattr_mode)
{
    return refuse<change>();
}

task<result<std::vector<std::string>>> file_backend::listxattrs(const request&, const handle&)
{
    return refuse<std::vector<std::string>>();
}

task<result<change>> file_backend::removexattr(const request&, const handle&, std::string_view)
{
    return refuse<change>();
}

} // namespace verbena::storage
