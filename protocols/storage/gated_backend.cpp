// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/gated_backend.hpp>

namespace verbena::storage {

namespace {

task<result<located_read>> not_here() { co_return located_read(); }

} // namespace

void gated_backend::leave(const request&, std::uint64_t, std::uint64_t) noexcept {}

// `call` holds what the operation was called with: values by value, and by reference what must live until the task ends.
template<class T, class Call>
task<result<T>> gated_backend::pass(operation op, const request& r, Call call)
{
    const auto entered = co_await enter(op, r, 0);
    if (!entered)
        co_return entered.error();
    task<result<T>> beneath = call(below());
    co_return co_await beneath;
}

namespace {

// Of what passed and was to move `asked` bytes.
template<class T>
std::uint64_t moved(const T& done, std::uint64_t asked) noexcept
{
    if constexpr (requires { done.count; })
        return done.count;
    else
        return asked;
}

} // namespace

template<class T, class Call>
task<result<T>> gated_backend::pass_bytes(operation op, const request& r, std::uint64_t bytes, Call call)
{
    const auto entered = co_await enter(op, r, bytes);
    if (!entered)
        co_return entered.error();
    task<result<T>> beneath = call(below());
    auto done = co_await beneath;
    leave(r, bytes, done ? moved(*done, bytes) : 0);
    co_return std::move(done);
}

task<result<attributes>> gated_backend::getattr(const request& r, const handle& file)
{
    if (!gates(operation::getattr))
        return below().getattr(r, file);
    return pass<attributes>(operation::getattr, r,
                            [&r, &file](file_backend& below) { return below.getattr(r, file); });
}

task<result<change>> gated_backend::setattr(const request& r, const handle& file, const set_attributes& set,
                                            std::optional<file_time> guard)
{
    if (!gates(operation::setattr))
        return below().setattr(r, file, set, guard);
    return pass<change>(operation::setattr, r, [&r, &file, &set, guard](file_backend& below) {
        return below.setattr(r, file, set, guard);
    });
}

task<result<lookup_result>> gated_backend::lookup(const request& r, const handle& directory,
                                                  std::string_view name)
{
    if (!gates(operation::lookup))
        return below().lookup(r, directory, name);
    return pass<lookup_result>(operation::lookup, r, [&r, &directory, name](file_backend& below) {
        return below.lookup(r, directory, name);
    });
}

task<result<unsigned>> gated_backend::access(const request& r, const handle& file, unsigned wanted)
{
    if (!gates(operation::access))
        return below().access(r, file, wanted);
    return pass<unsigned>(operation::access, r,
                          [&r, &file, wanted](file_backend& below) { return below.access(r, file, wanted); });
}

task<result<opened_file>> gated_backend::open(const request& r, const handle& file, unsigned wanted,
                                              open_right right)
{
    if (!gates(operation::open))
        return below().open(r, file, wanted, right);
    return pass<opened_file>(operation::open, r, [&r, &file, wanted, right](file_backend& below) {
        return below.open(r, file, wanted, right);
    });
}

task<result<std::string>> gated_backend::readlink(const request& r, const handle& link)
{
    if (!gates(operation::readlink))
        return below().readlink(r, link);
    return pass<std::string>(operation::readlink, r,
                             [&r, &link](file_backend& below) { return below.readlink(r, link); });
}

task<result<read_result>> gated_backend::read(const request& r, const handle& file, std::uint64_t offset,
                                              std::span<std::byte> out)
{
    if (!gates(operation::read))
        return below().read(r, file, offset, out);
    return pass_bytes<read_result>(
        operation::read, r, out.size(),
        [&r, &file, offset, out](file_backend& below) { return below.read(r, file, offset, out); });
}

task<result<located_read>> gated_backend::locate(const request& r, const handle& file, std::uint64_t offset,
                                                 std::uint32_t length, locatable where)
{
    if (!gates(operation::read))
        return below().locate(r, file, offset, length, where);
    return not_here();
}

task<result<write_result>> gated_backend::write(const request& r, const handle& file, std::uint64_t offset,
                                                std::span<const std::span<const std::byte>> pieces,
                                                stability wanted)
{
    if (!gates(operation::write))
        return below().write(r, file, offset, pieces, wanted);
    std::uint64_t bytes = 0;
    for (const auto piece : pieces)
        bytes += piece.size();
    return pass_bytes<write_result>(operation::write, r, bytes,
                                    [&r, &file, offset, pieces, wanted](file_backend& below) {
                                        return below.write(r, file, offset, pieces, wanted);
                                    });
}

task<result<create_result>> gated_backend::create(const request& r, const handle& directory,
                                                  std::string_view name, create_mode mode,
                                                  const set_attributes& set, std::uint64_t verifier)
{
    if (!gates(operation::create))
        return below().create(r, directory, name, mode, set, verifier);
    return pass<create_result>(operation::create, r,
                               [&r, &directory, name, mode, &set, verifier](file_backend& below) {
                                   return below.create(r, directory, name, mode, set, verifier);
                               });
}

task<result<create_result>> gated_backend::mkdir(const request& r, const handle& directory,
                                                 std::string_view name, const set_attributes& set)
{
    if (!gates(operation::mkdir))
        return below().mkdir(r, directory, name, set);
    return pass<create_result>(operation::mkdir, r, [&r, &directory, name, &set](file_backend& below) {
        return below.mkdir(r, directory, name, set);
    });
}

task<result<create_result>> gated_backend::symlink(const request& r, const handle& directory,
                                                   std::string_view name, std::string_view target,
                                                   const set_attributes& set)
{
    if (!gates(operation::symlink))
        return below().symlink(r, directory, name, target, set);
    return pass<create_result>(operation::symlink, r,
                               [&r, &directory, name, target, &set](file_backend& below) {
                                   return below.symlink(r, directory, name, target, set);
                               });
}

task<result<create_result>> gated_backend::mknod(const request& r, const handle& directory,
                                                 std::string_view name, file_type type, std::uint32_t major,
                                                 std::uint32_t minor, const set_attributes& set)
{
    if (!gates(operation::mknod))
        return below().mknod(r, directory, name, type, major, minor, set);
    return pass<create_result>(operation::mknod, r,
                               [&r, &directory, name, type, major, minor, &set](file_backend& below) {
                                   return below.mknod(r, directory, name, type, major, minor, set);
                               });
}

task<result<change>> gated_backend::remove(const request& r, const handle& directory, std::string_view name)
{
    if (!gates(operation::remove))
        return below().remove(r, directory, name);
    return pass<change>(operation::remove, r, [&r, &directory, name](file_backend& below) {
        return below.remove(r, directory, name);
    });
}

task<result<change>> gated_backend::rmdir(const request& r, const handle& directory, std::string_view name)
{
    if (!gates(operation::rmdir))
        return below().rmdir(r, directory, name);
    return pass<change>(operation::rmdir, r, [&r, &directory, name](file_backend& below) {
        return below.rmdir(r, directory, name);
    });
}

task<result<rename_result>> gated_backend::rename(const request& r, const handle& from_directory,
                                                  std::string_view from, const handle& to_directory,
                                                  std::string_view to)
{
    if (!gates(operation::rename))
        return below().rename(r, from_directory, from, to_directory, to);
    return pass<rename_result>(operation::rename, r,
                               [&r, &from_directory, from, &to_directory, to](file_backend& below) {
                                   return below.rename(r, from_directory, from, to_directory, to);
                               });
}

task<result<link_result>> gated_backend::link(const request& r, const handle& file, const handle& directory,
                                              std::string_view name)
{
    if (!gates(operation::link))
        return below().link(r, file, directory, name);
    return pass<link_result>(operation::link, r, [&r, &file, &directory, name](file_backend& below) {
        return below.link(r, file, directory, name);
    });
}

task<result<readdir_result>> gated_backend::readdir(const request& r, const handle& directory,
                                                    std::uint64_t cookie, std::uint64_t verifier,
                                                    bool with_attributes, directory_sink& sink)
{
    if (!gates(operation::readdir))
        return below().readdir(r, directory, cookie, verifier, with_attributes, sink);
    return pass<readdir_result>(
        operation::readdir, r,
        [&r, &directory, cookie, verifier, with_attributes, &sink](file_backend& below) {
            return below.readdir(r, directory, cookie, verifier, with_attributes, sink);
        });
}

task<result<filesystem_stat>> gated_backend::statfs(const request& r, const handle& file)
{
    if (!gates(operation::statfs))
        return below().statfs(r, file);
    return pass<filesystem_stat>(operation::statfs, r,
                                 [&r, &file](file_backend& below) { return below.statfs(r, file); });
}

task<result<change>> gated_backend::commit(const request& r, const handle& file, std::uint64_t offset,
                                           std::uint32_t count)
{
    if (!gates(operation::commit))
        return below().commit(r, file, offset, count);
    return pass<change>(operation::commit, r, [&r, &file, offset, count](file_backend& below) {
        return below.commit(r, file, offset, count);
    });
}

task<result<seek_result>> gated_backend::seek(const request& r, const handle& file, std::uint64_t offset,
                                              extent what)
{
    if (!gates(operation::seek))
        return below().seek(r, file, offset, what);
    return pass<seek_result>(operation::seek, r, [&r, &file, offset, what](file_backend& below) {
        return below.seek(r, file, offset, what);
    });
}

task<result<change>> gated_backend::allocate(const request& r, const handle& file, std::uint64_t offset,
                                             std::uint64_t length)
{
    if (!gates(operation::allocate))
        return below().allocate(r, file, offset, length);
    return pass<change>(operation::allocate, r, [&r, &file, offset, length](file_backend& below) {
        return below.allocate(r, file, offset, length);
    });
}

task<result<change>> gated_backend::deallocate(const request& r, const handle& file, std::uint64_t offset,
                                               std::uint64_t length)
{
    if (!gates(operation::deallocate))
        return below().deallocate(r, file, offset, length);
    return pass<change>(operation::deallocate, r, [&r, &file, offset, length](file_backend& below) {
        return below.deallocate(r, file, offset, length);
    });
}

task<result<copy_result>> gated_backend::copy(const request& r, const handle& from, std::uint64_t from_offset,
                                              const handle& to, std::uint64_t to_offset, std::uint64_t length)
{
    if (!gates(operation::copy))
        return below().copy(r, from, from_offset, to, to_offset, length);
    return pass_bytes<copy_result>(operation::copy, r, length,
                                   [&r, &from, from_offset, &to, to_offset, length](file_backend& below) {
                                       return below.copy(r, from, from_offset, to, to_offset, length);
                                   });
}

// Peers that have a mapping read and write past this.
task<result<mapping>> gated_backend::map(const request& r, const handle& file, std::uint64_t offset,
                                         std::uint64_t length, map_use use)
{
    if (gates(operation::read) || gates(operation::write))
        // To be unsupported is the point. NOLINTNEXTLINE(bugprone-parent-virtual-call)
        return file_backend::map(r, file, offset, length, use);
    return below().map(r, file, offset, length, use);
}

task<result<change>> gated_backend::note_written(const request& r, const handle& file, peer_writes what)
{
    if (gates(operation::read) || gates(operation::write))
        // As map(). NOLINTNEXTLINE(bugprone-parent-virtual-call)
        return file_backend::note_written(r, file, what);
    return below().note_written(r, file, what);
}

task<result<change>> gated_backend::clone(const request& r, const handle& from, std::uint64_t from_offset,
                                          const handle& to, std::uint64_t to_offset, std::uint64_t length)
{
    if (!gates(operation::clone))
        return below().clone(r, from, from_offset, to, to_offset, length);
    return pass<change>(operation::clone, r,
                        [&r, &from, from_offset, &to, to_offset, length](file_backend& below) {
                            return below.clone(r, from, from_offset, to, to_offset, length);
                        });
}

task<result<std::vector<std::byte>>> gated_backend::getxattr(const request& r, const handle& file,
                                                             std::string_view name)
{
    if (!gates(operation::getxattr))
        return below().getxattr(r, file, name);
    return pass<std::vector<std::byte>>(operation::getxattr, r, [&r, &file, name](file_backend& below) {
        return below.getxattr(r, file, name);
    });
}

task<result<change>> gated_backend::setxattr(const request& r, const handle& file, std::string_view name,
                                             std::span<const std::byte> value, xattr_mode mode)
{
    if (!gates(operation::setxattr))
        return below().setxattr(r, file, name, value, mode);
    return pass<change>(operation::setxattr, r, [&r, &file, name, value, mode](file_backend& below) {
        return below.setxattr(r, file, name, value, mode);
    });
}

task<result<std::vector<std::string>>> gated_backend::listxattrs(const request& r, const handle& file)
{
    if (!gates(operation::listxattrs))
        return below().listxattrs(r, file);
    return pass<std::vector<std::string>>(
        operation::listxattrs, r, [&r, &file](file_backend& below) { return below.listxattrs(r, file); });
}

task<result<change>> gated_backend::removexattr(const request& r, const handle& file, std::string_view name)
{
    if (!gates(operation::removexattr))
        return below().removexattr(r, file, name);
    return pass<change>(operation::removexattr, r,
                        [&r, &file, name](file_backend& below) { return below.removexattr(r, file, name); });
}

task<result<access_list>> gated_backend::getacl(const request& r, const handle& file)
{
    if (!gates(operation::getacl))
        return below().getacl(r, file);
    return pass<access_list>(operation::getacl, r,
                             [&r, &file](file_backend& below) { return below.getacl(r, file); });
}

} // namespace verbena::storage
