// SPDX-License-Identifier: Apache-2.0
// The files of a server, whichever version of NFS they are asked for in. Handles and attributes are version 4's, of which version 3's
// are a part.
#pragma once

#include "open_file.hpp"

#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/client/v3/client.hpp>
#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/nfs/client/v4/pnfs/layout_user.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::cli {

using handle = nfs::v4::known_handle;
using attributes = nfs::v4::file_attributes;
using new_attributes = nfs::v4::new_attributes;
using node = nfs::v4::node;
using directory_entry = nfs::v4::directory_entry;
using file_type = nfs::v4::nfs_ftype4;
using file_time = nfs::v4::nfstime4;

/// Octets that list() holds at most.
inline constexpr std::size_t listing_bytes = nfs::client::listing_bytes;

/// One number for both of an fsid's.
std::uint64_t file_system_of(const attributes& a) noexcept;

/// This holds for all its tasks: what the client of the version says of its own. Shard-local.
class remote {
public:
    virtual ~remote() = default;

    virtual task<result<node>> lookup(const handle& directory, std::string_view name) = 0;
    virtual task<result<node>> walk(const handle& start, std::string_view path, bool follow_last) = 0;
    virtual task<result<std::string>> readlink(const handle& link) = 0;
    /// Without "." and "..". `plus`: with what was found, where the server tells it.
    virtual task<result<std::vector<directory_entry>>> list(const handle& directory, bool plus,
                                                            std::size_t most = listing_bytes) = 0;
    virtual task<result<node>> mkdir(const handle& directory, std::string_view name,
                                     const new_attributes& set) = 0;
    virtual task<result<void>> symlink(const handle& directory, std::string_view name,
                                       std::string_view target, const new_attributes& set) = 0;
    virtual task<result<void>> remove(const handle& directory, std::string_view name) = 0;
    virtual task<result<void>> rmdir(const handle& directory, std::string_view name) = 0;
    virtual task<result<void>> rename(const handle& from_directory, std::string_view from,
                                      const handle& to_directory, std::string_view to) = 0;
    virtual task<result<void>> setattr(const handle& object, const new_attributes& set) = 0;
    virtual task<result<nfs::v4::file_system_space>> space(const handle& object) = 0;
    /// To read.
    virtual task<result<std::unique_ptr<open_file>>> open(const node& object) = 0;
    /// To write. What is there stays as it is.
    virtual task<result<std::unique_ptr<open_file>>> create(const handle& directory, std::string_view name,
                                                            const new_attributes& set) = 0;
    /// The server of `other` is this one and can be asked to copy from its files, whose handles are known here.
    virtual bool copies_from(const remote& other) const noexcept = 0;
    /// Has it copy the first `length` bytes of `from`, which open() of the other one yielded, to the beginning of `to`, which create() of this yielded; how
    /// many they were. `progress` hears of them as they are copied. If copies_from(). Errors: not_supported: for no file; ESTALE: this server knows
    /// another file by that handle, or another state of it.
    virtual task<result<std::uint64_t>> copy(open_file& from, open_file& to, std::uint64_t length,
                                             std::function<void(std::uint64_t)> progress) = 0;
    /// Calls nothing.
    virtual task<result<void>> null() = 0;
    /// The most that one read or write moves.
    virtual std::uint32_t read_size() const noexcept = 0;
    virtual std::uint32_t write_size() const noexcept = 0;
};

/// The clients outlive them, and so do `layouts`, by which bytes of files go unless that is nullptr.
std::unique_ptr<remote> make_remote(nfs::client& of);
std::unique_ptr<remote> make_remote(nfs::v4::client& of, nfs::v4::pnfs::layout_user* layouts = nullptr);

handle to_handle(const nfs::v3::nfs_fh3& of) noexcept;

} // namespace verbena::cli
