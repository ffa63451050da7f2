// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/permissions.hpp>
#include <verbena/protocols/storage/read_only_backend.hpp>

#include <cerrno>
#include <unistd.h>

namespace verbena::storage {

namespace {

template<class T>
task<result<T>> refuse()
{
    co_return error::from_errno(EROFS, "the back end is read-only");
}

} // namespace

task<result<unsigned>> read_only_backend::access(const request& r, const handle& file, unsigned wanted)
{
    wanted &= R_OK | X_OK;
    auto granted = co_await may_read(r, file, wanted);
    if (!granted)
        co_return granted.error();
    co_return *granted& wanted;
}

task<result<unsigned>> read_only_backend::may_read(const request& r, const handle& file, unsigned wanted)
{
    const auto attrs = co_await getattr(r, file);
    if (!attrs)
        co_return attrs.error();
    co_return allowed(*attrs, r.who, wanted);
}

task<result<std::string>> read_only_backend::readlink(const request&, const handle&)
{
    co_return error::from_errno(EINVAL, "no symbolic link");
}

task<result<filesystem_stat>> read_only_backend::statfs(const request& r, const handle& file)
{
    const auto attrs = co_await getattr(r, file);
    if (!attrs)
        co_return attrs.error();
    co_return filesystem_stat();
}

task<result<change>> read_only_backend::setattr(const request&, const handle&, const set_attributes&,
                                                std::optional<file_time>)
{
    return refuse<change>();
}

task<result<write_result>> read_only_backend::write(const request&, const handle&, std::uint64_t,
                                                    std::span<const std::span<const std::byte>>, stability)
{
    return refuse<write_result>();
}

task<result<create_result>> read_only_backend::create(const request&, const handle&, std::string_view,
                                                      create_mode, const set_attributes&, std::uint64_t)
{
    return refuse<create_result>();
}

task<result<create_result>> read_only_backend::mkdir(const request&, const handle&, std::string_view,
                                                     const set_attributes&)
{
    return refuse<create_result>();
}

task<result<create_result>> read_only_backend::symlink(const request&, const handle&, std::string_view,
                                                       std::string_view, const set_attributes&)
{
    return refuse<create_result>();
}

task<result<create_result>> read_only_backend::mknod(const request&, const handle&, std::string_view,
                                                     file_type, std::uint32_t, std::uint32_t,
                                                     const set_attributes&)
{
    return refuse<create_result>();
}

task<result<change>> read_only_backend::remove(const request&, const handle&, std::string_view)
{
    return refuse<change>();
}

task<result<change>> read_only_backend::rmdir(const request&, const handle&, std::string_view)
{
    return refuse<change>();
}

task<result<rename_result>> read_only_backend::rename(const request&, const handle&, std::string_view,
                                                      const handle&, std::string_view)
{
    return refuse<rename_result>();
}

task<result<link_result>> read_only_backend::link(const request&, const handle&, const handle&,
                                                  std::string_view)
{
    return refuse<link_result>();
}

task<result<change>> read_only_backend::commit(const request&, const handle&, std::uint64_t, std::uint32_t)
{
    return refuse<change>();
}

task<result<change>> read_only_backend::allocate(const request&, const handle&, std::uint64_t, std::uint64_t)
{
    return refuse<change>();
}

task<result<change>> read_only_backend::deallocate(const request&, const handle&, std::uint64_t,
                                                   std::uint64_t)
{
    return refuse<change>();
}

task<result<copy_result>> read_only_backend::copy(const request&, const handle&, std::uint64_t, const handle&,
                                                  std::uint64_t, std::uint64_t)
{
    return refuse<copy_result>();
}

task<result<change>> read_only_backend::clone(const request&, const handle&, std::uint64_t, const handle&,
                                              std::uint64_t, std::uint64_t)
{
    return refuse<change>();
}

task<result<change>> read_only_backend::note_written(const request&, const handle&, peer_writes)
{
    return refuse<change>();
}

task<result<change>> read_only_backend::setxattr(const request&, const handle&, std::string_view,
                                                 std::span<const std::byte>, xattr_mode)
{
    return refuse<change>();
}

task<result<change>> read_only_backend::removexattr(const request&, const handle&, std::string_view)
{
    return refuse<change>();
}

} // namespace verbena::storage
