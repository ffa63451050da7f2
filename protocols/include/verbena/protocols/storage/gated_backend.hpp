// SPDX-License-Identifier: Apache-2.0
// gated_backend: the base of filters that let an operation pass, make it wait or refuse it, whatever the operation is.
#pragma once

#include <verbena/protocols/storage/forwarding_backend.hpp>
#include <verbena/protocols/storage/operation.hpp>

#include <cstdint>
#include <memory>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// A filter with one gate that operations pass before they reach the back end below. What is not gated is forwarded as
/// forwarding_backend does it. Of a gated operation enter() runs when its task does, on the caller's shard; only once that
/// succeeds is anything asked of the back end below. The bytes of files are those below: what changes them derives from forwarding_backend.
class gated_backend : public forwarding_backend {
public:
    /// As forwarding_backend().
    explicit gated_backend(std::unique_ptr<file_backend> below) noexcept
        : forwarding_backend(std::move(below), filter_bytes::are_those_below)
    {
    }
    explicit gated_backend(file_backend& below) noexcept
        : forwarding_backend(below, filter_bytes::are_those_below)
    {
    }

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
                                   std::span<std::byte> out) final;
    /// Where reads are gated: not `here`, so that the caller asks read(), which passes the gate.
    task<result<located_read>> locate(const request& r, const handle& file, std::uint64_t offset,
                                      std::uint32_t length, locatable where) override;
    task<result<write_result>> write(const request& r, const handle& file, std::uint64_t offset,
                                     std::span<const std::span<const std::byte>> pieces,
                                     stability wanted) final;
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

protected:
    /// True if `op` has to pass enter(). Asked when the operation is called, on any shard.
    virtual bool gates(operation op) const noexcept = 0;
    /// Lets an operation pass, after a wait if need be, or gives the error that it is answered with. `bytes` is how many a read,
    /// a write or a copy would move or allocate() would take, 0 of other operations.
    ///
    /// Completes when: the operation may pass, or is refused. On cancel: a wait ends, ECANCELED, or goes on: the filter says so.
    /// Errors: what the operation is answered with, which is then not done. Lifetime: `r` lives until the operation ends. Shard:
    /// the caller's.
    virtual task<result<void>> enter(operation op, const request& r, std::uint64_t bytes) = 0;
    /// Told after one of those that passed: it would have moved `asked` bytes and moved `moved`, none if it failed.
    virtual void leave(const request& r, std::uint64_t asked, std::uint64_t moved) noexcept;

private:
    template<class T, class Call>
    task<result<T>> pass(operation op, const request& r, Call call);
    template<class T, class Call>
    task<result<T>> pass_bytes(operation op, const request& r, std::uint64_t bytes, Call call);
};

} // namespace verbena::storage

#pragma GCC visibility pop
