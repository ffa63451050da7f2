// SPDX-License-Identifier: Apache-2.0
// forwarding_backend: the base of filters, which stand on another back end and change a part of what it does.
#pragma once

#include <verbena/protocols/storage/file_backend.hpp>

#include <cstdint>
#include <memory>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// Whether a file's bytes are the same above a filter and below it.
enum class filter_bytes : std::uint8_t {
    may_differ, ///< what read() yields and write() takes: encrypted, compressed, checked
    are_those_below,
};

/// Forwards calls to the back end below; a filter overrides what it wants to change. A call costs one virtual call more
/// and no frame: the task returned is the one from below. Shards, lifetimes, cancellation and errors are those of file_backend
/// and of the back end below. kind(), info(), root() and write_verifier() are those of the back end below, too.
///
/// open() goes to the back end below, which asks its own access(): a filter that decides who may use a file overrides open() as well as access().
/// One that decides who may remove or rename overrides may_remove() and may_rename() as well as these.
///
/// locate(), seek(), allocate(), deallocate(), copy(), clone(), map() and note_written() show or change bytes of files past read() and write(). They are forwarded only where
/// the filter says that bytes are those below. Elsewhere they do what a back end without them does (not `here`, EOPNOTSUPP), so that a filter which
/// overrides read() and write() alone lets nothing through; one that has its own way to do them overrides them.
class forwarding_backend : public file_backend {
public:
    /// Owns `below`, which must not be null.
    explicit forwarding_backend(std::unique_ptr<file_backend> below,
                                filter_bytes bytes = filter_bytes::may_differ) noexcept;
    /// `below` stays the caller's and outlives this.
    explicit forwarding_backend(file_backend& below, filter_bytes bytes = filter_bytes::may_differ) noexcept
        : below_(below), forwards_bytes_(bytes == filter_bytes::are_those_below)
    {
    }
    forwarding_backend(const forwarding_backend&) = delete;

    /// The back end that this one stands on.
    file_backend& below() const noexcept { return below_; }

    std::string_view kind() const noexcept override;
    const filesystem_info& info() const noexcept override;
    handle root() const noexcept override;
    std::uint64_t write_verifier() const noexcept override;
    std::optional<std::uint64_t> number_in(const handle& file) const noexcept override;

    void leave_shard() noexcept override { below_.leave_shard(); }
    void refuse_changes(bool all) noexcept override { below_.refuse_changes(all); }

    task<result<attributes>> getattr(const request& r, const handle& file) override;
    task<result<change>> setattr(const request& r, const handle& file, const set_attributes& set,
                                 std::optional<file_time> guard) override;
    task<result<lookup_result>> lookup(const request& r, const handle& directory,
                                       std::string_view name) override;
    task<result<unsigned>> access(const request& r, const handle& file, unsigned wanted) override;
    task<result<opened_file>> open(const request& r, const handle& file, unsigned wanted,
                                   open_right right) override;
    task<result<std::string>> readlink(const request& r, const handle& link) override;
    task<result<read_result>> read(const request& r, const handle& file, std::uint64_t offset,
                                   std::span<std::byte> out) override;
    task<result<located_read>> locate(const request& r, const handle& file, std::uint64_t offset,
                                      std::uint32_t length, locatable where) override;
    task<result<write_result>> write(const request& r, const handle& file, std::uint64_t offset,
                                     std::span<const std::span<const std::byte>> pieces,
                                     stability wanted) override;
    task<result<create_result>> create(const request& r, const handle& directory, std::string_view name,
                                       create_mode mode, const set_attributes& set,
                                       std::uint64_t verifier) override;
    task<result<create_result>> mkdir(const request& r, const handle& directory, std::string_view name,
                                      const set_attributes& set) override;
    task<result<create_result>> symlink(const request& r, const handle& directory, std::string_view name,
                                        std::string_view target, const set_attributes& set) override;
    task<result<create_result>> mknod(const request& r, const handle& directory, std::string_view name,
                                      file_type type, std::uint32_t major, std::uint32_t minor,
                                      const set_attributes& set) override;
    task<result<change>> remove(const request& r, const handle& directory, std::string_view name) override;
    task<result<change>> rmdir(const request& r, const handle& directory, std::string_view name) override;
    task<result<rename_result>> rename(const request& r, const handle& from_directory, std::string_view from,
                                       const handle& to_directory, std::string_view to) override;
    task<result<void>> may_remove(const request& r, const handle& directory, std::string_view name) override;
    task<result<void>> may_rename(const request& r, const handle& from_directory, std::string_view from,
                                  const handle& to_directory, std::string_view to) override;
    task<result<link_result>> link(const request& r, const handle& file, const handle& directory,
                                   std::string_view name) override;
    task<result<readdir_result>> readdir(const request& r, const handle& directory, std::uint64_t cookie,
                                         std::uint64_t verifier, bool with_attributes,
                                         directory_sink& sink) override;
    task<result<filesystem_stat>> statfs(const request& r, const handle& file) override;
    task<result<change>> commit(const request& r, const handle& file, std::uint64_t offset,
                                std::uint32_t count) override;
    task<result<seek_result>> seek(const request& r, const handle& file, std::uint64_t offset,
                                   extent what) override;
    task<result<change>> allocate(const request& r, const handle& file, std::uint64_t offset,
                                  std::uint64_t length) override;
    task<result<change>> deallocate(const request& r, const handle& file, std::uint64_t offset,
                                    std::uint64_t length) override;
    task<result<copy_result>> copy(const request& r, const handle& from, std::uint64_t from_offset,
                                   const handle& to, std::uint64_t to_offset, std::uint64_t length) override;
    task<result<change>> clone(const request& r, const handle& from, std::uint64_t from_offset,
                               const handle& to, std::uint64_t to_offset, std::uint64_t length) override;
    task<result<mapping>> map(const request& r, const handle& file, std::uint64_t offset,
                              std::uint64_t length, map_use use) override;
    task<result<change>> note_written(const request& r, const handle& file, peer_writes what) override;
    task<result<std::vector<std::byte>>> getxattr(const request& r, const handle& file,
                                                  std::string_view name) override;
    task<result<change>> setxattr(const request& r, const handle& file, std::string_view name,
                                  std::span<const std::byte> value, xattr_mode mode) override;
    task<result<std::vector<std::string>>> listxattrs(const request& r, const handle& file) override;
    task<result<change>> removexattr(const request& r, const handle& file, std::string_view name) override;
    task<result<access_list>> getacl(const request& r, const handle& file) override;
    task<result<std::unique_ptr<file_lease>>> lease(const handle& file, lease_wanted wanted) override;
    std::unique_ptr<local_locks> local_locks_of(const handle& file) override;
    snapshot_keeper* snapshots() noexcept override { return below_.snapshots(); }

private:
    std::unique_ptr<file_backend> owned_;
    file_backend& below_;
    const bool forwards_bytes_;
};

} // namespace verbena::storage

#pragma GCC visibility pop
