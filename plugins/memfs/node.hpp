// SPDX-License-Identifier: Apache-2.0
// Files of memfs, and what their modes and ACLs allow.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/storage/acl.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::memfs {

/// Bytes of one file: blocks where something was written, nothing where not. Two files may share a block; each pays for it, so that
/// a write that parts them finds room.
class file_data {
public:
    static constexpr std::uint64_t block_size = std::uint64_t(64) << 10;

    /// Copies bytes from `offset`; holes read as zeros.
    void read(std::uint64_t offset, std::span<std::byte> out) const noexcept;
    /// Overwrites bytes from `offset`; room was taken for them (see reserve).
    void write(std::uint64_t offset, std::span<const std::byte> in);
    /// How many blocks are missing for a write of `length` bytes at `offset`.
    std::uint64_t missing(std::uint64_t offset, std::uint64_t length) const noexcept;
    /// Takes room for them. They stay holes until something is written.
    void reserve(std::uint64_t offset, std::uint64_t length);
    /// Has a range read as zeros, and gives back the blocks that it covers: how many.
    std::uint64_t clear(std::uint64_t offset, std::uint64_t length);
    /// Where data or a hole begins at or behind `offset`, `size` if that is nowhere before it.
    std::uint64_t find(storage::extent what, std::uint64_t offset, std::uint64_t size) const noexcept;
    /// How many there are among `count` places.
    std::uint64_t blocks(std::uint64_t first, std::uint64_t count) const noexcept;
    /// Has `count` places from `to` on hold what `other`, which may be this, has from `from` on.
    void share(const file_data& other, std::uint64_t from, std::uint64_t to, std::uint64_t count);
    /// Forgets what lies behind `size`; the number of blocks given back.
    std::uint64_t truncate(std::uint64_t size);
    std::uint64_t blocks() const noexcept { return blocks_.size(); }

private:
    using block = std::array<std::byte, block_size>;
    using block_map = std::map<std::uint64_t, std::shared_ptr<block>>;
    /// To be written to: of this file alone.
    static block& own(std::shared_ptr<block>& shared);
    static void zero(std::shared_ptr<block>& shared, std::uint64_t begin, std::uint64_t end);
    block_map blocks_; ///< nullptr: room that was taken, and not written to
};

/// One file of any type.
struct node {
    /// An entry of a directory. Its cookie is its number, which no later entry gets again.
    struct child {
        std::uint64_t cookie = 0;
        std::uint64_t fileid = 0;
    };

    /// A change at `t`. The time in nanoseconds leaves room between two numbers for those that the server counts on while a client has the file to
    /// itself (kept_attributes); the clock may stand still, or be set back.
    void touch(const storage::file_time& t) noexcept
    {
        attrs.ctime = t;
        const std::uint64_t at = static_cast<std::uint64_t>(t.seconds) * 1'000'000'000 + t.nanoseconds;
        attrs.change = std::max(attrs.change.value_or(0) + 1, at);
    }
    bool is_directory() const noexcept { return attrs.type == storage::file_type::directory; }
    bool is_regular() const noexcept { return attrs.type == storage::file_type::regular; }
    void add(std::string_view name, std::uint64_t fileid)
    {
        children.emplace(std::string(name), child{next_cookie, fileid});
        order.emplace(next_cookie++, std::string(name));
    }
    void take_away(std::string_view name)
    {
        auto found = children.find(name);
        order.erase(found->second.cookie);
        children.erase(found);
    }

    storage::attributes attrs;
    file_data data;
    std::string target; ///< of a symbolic link
    std::map<std::string, std::vector<std::byte>, std::less<>> xattrs;
    std::uint64_t parent = 0; ///< of a directory
    std::map<std::string, child, std::less<>> children;
    std::map<std::uint64_t, std::string> order;
    std::uint64_t opens = 0;               ///< that keep it there when it has no name
    std::uint64_t next_cookie = 3;         ///< "." is 1 and ".." 2
    std::optional<std::uint64_t> verifier; ///< of an exclusive create, until times are set or data written
    std::unique_ptr<storage::access_list> acl; ///< nullptr: the mode says it all
};

/// Those of `wanted` (storage::ace_right) that `who` has, by the ACL or, where there is none, by the mode: that gives each of the rights to read, write and execute, and to
/// the owner those that are his.
std::uint32_t rights_of(const node& n, const storage::credential& who, std::uint32_t wanted) noexcept;

/// `mode` as `who` may set it, by a mode or by an ACL: none but root has others' programs run as their owner, or with a group that
/// he is not in (Linux: setattr_prepare, posix_acl_update_mode).
std::uint32_t mode_set_by(const storage::attributes& a, std::uint32_t mode,
                          const storage::credential& who) noexcept;

/// The mode without the set-ID bits that a change by `who` of data or owner takes away, as Linux does it.
std::uint32_t without_set_id(const storage::attributes& a, const storage::credential& who) noexcept;

storage::file_time now() noexcept;
inline error fails(int e, const char* context) noexcept { return error::from_errno(e, context); }

} // namespace verbena::memfs
