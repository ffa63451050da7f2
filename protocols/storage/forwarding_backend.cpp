// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <utility>

namespace verbena::storage {

forwarding_backend::forwarding_backend(std::unique_ptr<file_backend> below, filter_bytes bytes) noexcept
    : owned_(std::move(below)), below_(*owned_), forwards_bytes_(bytes == filter_bytes::are_those_below)
{
}

std::string_view forwarding_backend::kind() const noexcept { return below_.kind(); }

const filesystem_info& forwarding_backend::info() const noexcept { return below_.info(); }

handle forwarding_backend::root() const noexcept { return below_.root(); }

std::uint64_t forwarding_backend::write_verifier() const noexcept { return below_.write_verifier(); }

std::optional<std::uint64_t> forwarding_backend::number_in(const handle& file) const noexcept
{
    return below_.number_in(file);
}

task<result<attributes>> forwarding_backend::getattr(const request& r, const handle& file)
{
    return below_.getattr(r, file);
}

task<result<change>> forwarding_backend::setattr(const request& r, const handle& file,
                                                 const set_attributes& set, std::optional<file_time> guard)
{
    return below_.setattr(r, file, set, guard);
}

task<result<lookup_result>> forwarding_backend::lookup(const request& r, const handle& directory,
                                                       std::string_view name)
{
    return below_.lookup(r, directory, name);
}

task<result<unsigned>> forwarding_backend::access(const request& r, const handle& file, unsigned wanted)
{
    return below_.access(r, file, wanted);
}

task<result<opened_file>> forwarding_backend::open(const request& r, const handle& file, unsigned wanted,
                                                   open_right right)
{
    return below_.open(r, file, wanted, right);
}

task<result<std::string>> forwarding_backend::readlink(const request& r, const handle& link)
{
    return below_.readlink(r, link);
}

task<result<read_result>> forwarding_backend::read(const request& r, const handle& file, std::uint64_t offset,
                                                   std::span<std::byte> out)
{
    return below_.read(r, file, offset, out);
}

task<result<located_read>> forwarding_backend::locate(const request& r, const handle& file,
                                                      std::uint64_t offset, std::uint32_t length,
                                                      locatable where)
{
    if (!forwards_bytes_)
        return file_backend::locate(r, file, offset, length, where);
    return below_.locate(r, file, offset, length, where);
}

task<result<write_result>> forwarding_backend::write(const request& r, const handle& file,
                                                     std::uint64_t offset,
                                                     std::span<const std::span<const std::byte>> pieces,
                                                     stability wanted)
{
    return below_.write(r, file, offset, pieces, wanted);
}

task<result<create_result>> forwarding_backend::create(const request& r, const handle& directory,
                                                       std::string_view name, create_mode mode,
                                                       const set_attributes& set, std::uint64_t verifier)
{
    return below_.create(r, directory, name, mode, set, verifier);
}

task<result<create_result>> forwarding_backend::mkdir(const request& r, const handle& directory,
                                                      std::string_view name, const set_attributes& set)
{
    return below_.mkdir(r, directory, name, set);
}

task<result<create_result>> forwarding_backend::symlink(const request& r, const handle& directory,
                                                        std::string_view name, std::string_view target,
                                                        const set_attributes& set)
{
    return below_.symlink(r, directory, name, target, set);
}

task<result<create_result>> forwarding_backend::mknod(const request& r, const handle& directory,
                                                      std::string_view name, file_type type,
                                                      std::uint32_t major, std::uint32_t minor,
                                                      const set_attributes& set)
{
    return below_.mknod(r, directory, name, type, major, minor, set);
}

task<result<change>> forwarding_backend::remove(const request& r, const handle& directory,
                                                std::string_view name)
{
    return below_.remove(r, directory, name);
}

task<result<change>> forwarding_backend::rmdir(const request& r, const handle& directory,
                                               std::string_view name)
{
    return below_.rmdir(r, directory, name);
}

task<result<rename_result>> forwarding_backend::rename(const request& r, const handle& from_directory,
                                                       std::string_view from, const handle& to_directory,
                                                       std::string_view to)
{
    return below_.rename(r, from_directory, from, to_directory, to);
}

task<result<void>> forwarding_backend::may_remove(const request& r, const handle& directory,
                                                  std::string_view name)
{
    return below_.may_remove(r, directory, name);
}

task<result<void>> forwarding_backend::may_rename(const request& r, const handle& from_directory,
                                                  std::string_view from, const handle& to_directory,
                                                  std::string_view to)
{
    return below_.may_rename(r, from_directory, from, to_directory, to);
}

task<result<link_result>> forwarding_backend::link(const request& r, const handle& file,
                                                   const handle& directory, std::string_view name)
{
    return below_.link(r, file, directory, name);
}

task<result<readdir_result>> forwarding_backend::readdir(const request& r, const handle& directory,
                                                         std::uint64_t cookie, std::uint64_t verifier,
                                                         bool with_attributes, directory_sink& sink)
{
    return below_.readdir(r, directory, cookie, verifier, with_attributes, sink);
}

task<result<filesystem_stat>> forwarding_backend::statfs(const request& r, const handle& file)
{
    return below_.statfs(r, file);
}

task<result<change>> forwarding_backend::commit(const request& r, const handle& file, std::uint64_t offset,
                                                std::uint32_t count)
{
    return below_.commit(r, file, offset, count);
}

task<result<seek_result>> forwarding_backend::seek(const request& r, const handle& file, std::uint64_t offset,
                                                   extent what)
{
    if (!forwards_bytes_)
        return file_backend::seek(r, file, offset, what);
    return below_.seek(r, file, offset, what);
}

task<result<change>> forwarding_backend::allocate(const request& r, const handle& file, std::uint64_t offset,
                                                  std::uint64_t length)
{
    if (!forwards_bytes_)
        return file_backend::allocate(r, file, offset, length);
    return below_.allocate(r, file, offset, length);
}

task<result<change>> forwarding_backend::deallocate(const request& r, const handle& file,
                                                    std::uint64_t offset, std::uint64_t length)
{
    if (!forwards_bytes_)
        return file_backend::deallocate(r, file, offset, length);
    return below_.deallocate(r, file, offset, length);
}

task<result<copy_result>> forwarding_backend::copy(const request& r, const handle& from,
                                                   std::uint64_t from_offset, const handle& to,
                                                   std::uint64_t to_offset, std::uint64_t length)
{
    if (!forwards_bytes_)
        return file_backend::copy(r, from, from_offset, to, to_offset, length);
    return below_.copy(r, from, from_offset, to, to_offset, length);
}

task<result<change>> forwarding_backend::clone(const request& r, const handle& from,
                                               std::uint64_t from_offset, const handle& to,
                                               std::uint64_t to_offset, std::uint64_t length)
{
    if (!forwards_bytes_)
        return file_backend::clone(r, from, from_offset, to, to_offset, length);
    return below_.clone(r, from, from_offset, to, to_offset, length);
}

task<result<mapping>> forwarding_backend::map(const request& r, const handle& file, std::uint64_t offset,
                                              std::uint64_t length, map_use use)
{
    if (!forwards_bytes_)
        return file_backend::map(r, file, offset, length, use);
    return below_.map(r, file, offset, length, use);
}

task<result<change>> forwarding_backend::note_written(const request& r, const handle& file, peer_writes what)
{
    if (!forwards_bytes_)
        return file_backend::note_written(r, file, what);
    return below_.note_written(r, file, what);
}

task<result<std::vector<std::byte>>> forwarding_backend::getxattr(const request& r, const handle& file,
                                                                  std::string_view name)
{
    return below_.getxattr(r, file, name);
}

task<result<change>> forwarding_backend::setxattr(const request& r, const handle& file, std::string_view name,
                                                  std::span<const std::byte> value, xattr_mode mode)
{
    return below_.setxattr(r, file, name, value, mode);
}

task<result<std::vector<std::string>>> forwarding_backend::listxattrs(const request& r, const handle& file)
{
    return below_.listxattrs(r, file);
}

task<result<change>> forwarding_backend::removexattr(const request& r, const handle& file,
                                                     std::string_view name)
{
    return below_.removexattr(r, file, name);
}

task<result<access_list>> forwarding_backend::getacl(const request& r, const handle& file)
{
    return below_.getacl(r, file);
}

task<result<std::unique_ptr<file_lease>>> forwarding_backend::lease(const handle& file, lease_wanted wanted)
{
    return below_.lease(file, std::move(wanted));
}

std::unique_ptr<local_locks> forwarding_backend::local_locks_of(const handle& file)
{
    return below_.local_locks_of(file);
}

} // namespace verbena::storage
