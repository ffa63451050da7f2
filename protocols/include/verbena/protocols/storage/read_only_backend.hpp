// SPDX-License-Identifier: Apache-2.0
// read_only_backend: the base of back ends that nothing can be written to, as an archive.
#pragma once

#include <verbena/protocols/storage/file_backend.hpp>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// Whoever derives implements reading: kind(), info(), root(), getattr(), lookup(), read(), readdir(), and readlink() where
/// there are symbolic links. Every change answers EROFS, before anything of the call is looked at. Shards, lifetimes,
/// cancellation and errors are those of file_backend.
class read_only_backend : public file_backend {
public:
    /// Always 0: no data can be lost.
    std::uint64_t write_verifier() const noexcept final { return 0; }

    /// What may_read() grants of `wanted` without W_OK, which nobody has.
    task<result<unsigned>> access(const request& r, const handle& file, unsigned wanted) final;
    /// EINVAL: there are no symbolic links, unless somebody overrides this.
    task<result<std::string>> readlink(const request& r, const handle& link) override;
    /// All zeros: a file system whose size nobody knows, without room. Fails as getattr() does.
    task<result<filesystem_stat>> statfs(const request& r, const handle& file) override;

    task<result<change>> setattr(const request& r, const handle& file, const set_attributes& set,
                                 std::optional<file_time> guard) final;
    task<result<write_result>> write(const request& r, const handle& file, std::uint64_t offset,
                                     std::span<const std::span<const std::byte>> pieces,
                                     stability wanted) final;
    task<result<create_result>> create(const request& r, const handle& directory, std::string_view name,
                                       create_mode mode, const set_attributes& set,
                                       std::uint64_t verifier) final;
    task<result<create_result>> mkdir(const request& r, const handle& directory, std::string_view name,
                                      const set_attributes& set) final;
    task<result<create_result>> symlink(const request& r, const handle& directory, std::string_view name,
                                        std::string_view target, const set_attributes& set) final;
    task<result<create_result>> mknod(const request& r, const handle& directory, std::string_view name,
                                      file_type type, std::uint32_t major, std::uint32_t minor,
                                      const set_attributes& set) final;
    task<result<change>> remove(const request& r, const handle& directory, std::string_view name) final;
    task<result<change>> rmdir(const request& r, const handle& directory, std::string_view name) final;
    task<result<rename_result>> rename(const request& r, const handle& from_directory, std::string_view from,
                                       const handle& to_directory, std::string_view to) final;
    task<result<link_result>> link(const request& r, const handle& file, const handle& directory,
                                   std::string_view name) final;
    task<result<change>> commit(const request& r, const handle& file, std::uint64_t offset,
                                std::uint32_t count) final;
    task<result<change>> allocate(const request& r, const handle& file, std::uint64_t offset,
                                  std::uint64_t length) final;
    task<result<change>> deallocate(const request& r, const handle& file, std::uint64_t offset,
                                    std::uint64_t length) final;
    task<result<copy_result>> copy(const request& r, const handle& from, std::uint64_t from_offset,
                                   const handle& to, std::uint64_t to_offset, std::uint64_t length) final;
    task<result<change>> clone(const request& r, const handle& from, std::uint64_t from_offset,
                               const handle& to, std::uint64_t to_offset, std::uint64_t length) final;
    task<result<change>> note_written(const request& r, const handle& file, peer_writes what) final;
    task<result<change>> setxattr(const request& r, const handle& file, std::string_view name,
                                  std::span<const std::byte> value, xattr_mode mode) final;
    task<result<change>> removexattr(const request& r, const handle& file, std::string_view name) final;

protected:
    /// The subset of `wanted`, R_OK and X_OK, that the user has. By default what the mode bits that getattr() gives allow (see
    /// allowed() in permissions.hpp, which read(), lookup() and readdir() of a derived class may ask, too). Completes when: that
    /// is known. On cancel: it goes on, as getattr(). Errors: those of getattr(). Lifetime: `r` and `file` outlive the task.
    /// Shard: the caller's.
    virtual task<result<unsigned>> may_read(const request& r, const handle& file, unsigned wanted);
};

} // namespace verbena::storage

#pragma GCC visibility pop
