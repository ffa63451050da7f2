// SPDX-License-Identifier: Apache-2.0
// Files of memfs, and what their modes and ACLs allow.
#pragma once

#include "arena.hpp"

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
#include <utility>
#include <vector>

namespace verbena::memfs {

/// Bytes of one file: blocks where something was written, nothing where not. Two files may share a block; each pays for it, so that
/// a write that parts them finds room. What is pinned is neither replaced nor freed, and shared with nobody.
class file_data {
public:
    static constexpr std::uint64_t block_size = arena::block_size;
    static constexpr std::uint64_t all_places = ~std::uint64_t(0);

    /// `memory` outlives it.
    explicit file_data(arena& memory) noexcept : memory_(&memory) {}
    file_data(file_data&& other) noexcept
        : memory_(other.memory_),
          blocks_(std::exchange(other.blocks_, {})),
          fresh_(std::exchange(other.fresh_, {})),
          pins_(std::exchange(other.pins_, 0)),
          is_kept_(other.is_kept_)
    {
    }
    file_data& operator=(file_data&&) = delete;
    /// Nothing is pinned.
    ~file_data();

    /// Copies bytes from `offset`; holes read as zeros.
    void read(std::uint64_t offset, std::span<std::byte> out) const noexcept;
    /// Blocks that follow each other in the memory.
    struct lent_blocks {
        arena::number first = arena::none;
        std::uint32_t count = 0;
    };
    struct loan {
        std::array<lent_blocks, storage::lent_memory::max_pieces> blocks{};
        std::array<std::span<const std::byte>, storage::lent_memory::max_pieces> pieces{};
        std::size_t count = 0; ///< of both
    };
    /// Puts `length` bytes from `offset` on loan, as they are now, until end_loan(). Nothing, where they do not lie in a few pieces, where one of
    /// their blocks is a hole or is pinned, as a peer may write there, or where the arena lends no more.
    std::optional<loan> lend(std::uint64_t offset, std::uint64_t length) const noexcept;
    /// Ends a loan of blocks of `memory`; the file may be gone.
    static void end_loan(arena& memory, const loan& what) noexcept;
    /// Overwrites bytes from `offset`; make_own() was asked for them.
    void write(std::uint64_t offset, std::span<const std::byte> in) noexcept;
    /// How many blocks are missing for a write of `length` bytes at `offset`.
    std::uint64_t missing(std::uint64_t offset, std::uint64_t length) const noexcept;
    /// Takes room for them. They stay holes until something is written.
    void reserve(std::uint64_t offset, std::uint64_t length);
    /// Has memory for each block of a range, where room was reserved, that no other file sees. Throws std::bad_alloc; the bytes are the same then.
    void make_own(std::uint64_t offset, std::uint64_t length);
    /// Has a range read as zeros, and gives back the blocks that it covers, but for those that are pinned.
    void clear(std::uint64_t offset, std::uint64_t length);
    /// Where data or a hole begins at or behind `offset`, `size` if that is nowhere before it.
    std::uint64_t find(storage::extent what, std::uint64_t offset, std::uint64_t size) const noexcept;
    /// How many there are among `count` places.
    std::uint64_t blocks(std::uint64_t first, std::uint64_t count) const noexcept;
    /// Has `count` places from `to` on hold what `other`, which may be this, has from `from` on: bytes of its file,
    /// which ends at `size`, and zeros behind that. None of the places from `to` on is pinned. Throws std::bad_alloc
    /// before anything is changed.
    void share(file_data& other, std::uint64_t size, std::uint64_t from, std::uint64_t to,
               std::uint64_t count);
    /// Forgets what lies behind `size`, of which nothing is pinned but in the block that `size` is in.
    void truncate(std::uint64_t size);
    std::uint64_t blocks() const noexcept { return blocks_.size(); }
    /// Lets go of up to `most` blocks, as the whole file goes; nothing is pinned. Whether there are more.
    bool let_go_some(std::size_t most) noexcept;

    /// Has the same bytes as `other`, which is of a file, for as long as it lives: of a snapshot, which is never changed. Before that
    /// it has none, and none of the other's is pinned. Throws std::bad_alloc; then it has some, which go with it.
    void keep(const file_data& other);
    struct run {
        std::uint64_t first = 0; ///< place
        std::uint64_t count = 0;
    };
    /// How many blocks snapshots alone would have if this let them go at all these places, of which none is there twice: a copy takes
    /// room then.
    std::uint64_t last_of_kept(std::span<const run> places) const noexcept;

    /// Whether one of `count` places is pinned, or has fresh memory.
    bool is_pinned(std::uint64_t first, std::uint64_t count) const noexcept
    {
        return pinned(first, count) != 0 || fresh_before(first, count) != count;
    }

    // Fresh memory: of who writes in the place of what a snapshot has, too. It is not the file's until it is taken in.
    struct fresh {
        std::uint64_t place = 0;
        std::span<std::byte> memory; ///< zeros
        std::span<const std::byte> beneath;
        arena::number block = arena::none, old = arena::none;
    };
    /// How many of `count` places come before the first that has some.
    std::uint64_t fresh_before(std::uint64_t first, std::uint64_t count) const noexcept
    {
        const auto at = fresh_.lower_bound(first);
        return at == fresh_.end() ? count : std::min(count, at->first - first);
    }
    /// Some for each of `count` places, which have none, whose block snapshots alone would have besides; with that pinned to write, and what is
    /// beneath kept. Throws std::bad_alloc before anything is changed.
    std::vector<fresh> make_fresh(std::uint64_t first, std::uint64_t count);
    /// Has what there is in `count` places be the file's. How many blocks these are.
    std::uint64_t take_in(std::uint64_t first, std::uint64_t count) noexcept;
    /// What make_fresh() made is not used any more: what was not taken in goes.
    void drop(std::span<const fresh> what) noexcept;
    /// Frees the blocks behind `size` that nobody has pinned, and has what lies behind it in its own block read as zeros, if nobody
    /// has that pinned to write. Whether all of it is gone. Throws std::bad_alloc.
    bool forget_behind(std::uint64_t size);
    /// How many of `count` places can be had with no more than `most` blocks that are zeroed or copied: such as are missing, where
    /// `fills`, and such as are shared.
    std::uint64_t places_for(std::uint64_t first, std::uint64_t count, bool fills,
                             std::uint64_t most) const noexcept;
    /// How many of `count` places are pinned.
    std::uint64_t pinned(std::uint64_t first, std::uint64_t count) const noexcept;
    /// Has nobody share what there is in `count` places. Throws std::bad_alloc; the bytes are the same then.
    void part(std::uint64_t first, std::uint64_t count);
    struct piece {
        std::uint64_t first = 0; ///< place
        std::span<std::byte> memory;
    };
    /// The memory of `count` places, which share none, where there is some; in order, as few as they can be.
    std::vector<piece> pieces(std::uint64_t first, std::uint64_t count) const;
    /// How many of `count` places are in a row such as make_fresh() takes, or such as it does not, as the first is.
    std::uint64_t run_of_kept(std::uint64_t first, std::uint64_t count, bool& is_kept) const noexcept;
    /// `writes`: for who may write there.
    void pin(std::span<const piece> what, bool writes) noexcept;
    /// What was pinned so.
    void unpin(std::span<const piece> what, bool writes) noexcept;
    /// Has bytes behind the end of the file that are there read as zeros, those in blocks that are pinned, and in fresh ones, only if
    /// `pinned_too`. Throws std::bad_alloc where they are shared. A snapshot's blocks have zeros there.
    void zero(std::uint64_t begin, std::uint64_t end, bool pinned_too = true);

private:
    // arena::none: room that was taken, and not written to.
    using block_map = std::map<std::uint64_t, arena::number>;
    void make_own(block_map::iterator at, std::uint64_t run);
    arena::number copy_of(arena::number b, arena::number before, std::uint64_t run);
    block_map::iterator add_place(block_map::const_iterator near, std::uint64_t place);
    void erase(block_map::iterator begin, block_map::iterator end) noexcept;
    arena::number before(block_map::const_iterator at) const noexcept;
    void zero(block_map::iterator at, std::uint64_t begin, std::uint64_t end);

    arena* const memory_;
    block_map blocks_;
    block_map fresh_;        // by places, which are counted
    std::uint64_t pins_ = 0; // of all blocks
    bool is_kept_ = false;   // by a snapshot: its places are not counted, and nothing of it is pinned
};

/// One file of any type.
struct node {
    explicit node(arena& memory) noexcept : data(memory) {}

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
    /// Throws std::bad_alloc; then there is no such name.
    void add(std::string_view name, std::uint64_t fileid)
    {
        const auto at = order.emplace(next_cookie, std::string(name)).first;
        try {
            children.emplace(std::string(name), child{next_cookie, fileid});
        } catch (...) {
            order.erase(at);
            throw;
        }
        ++next_cookie;
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
    std::uint64_t parent = 0; ///< of a directory; of what is none, where it got the newest of its names
    std::uint64_t place = 0;  ///< the cookie of that name there, which may be gone
    bool is_kept = false;     ///< of a snapshot, or the directory that has these: nobody changes it
    std::map<std::string, child, std::less<>> children;
    std::map<std::uint64_t, std::string> order;
    std::uint64_t opens = 0;               ///< that keep it there when it has no name; mappings, too
    bool reached_behind_end = false;       ///< a peer may have written there, and told nobody
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
/// Why nothing in a snapshot is changed, and what to do.
inline constexpr const char* kept_rule =
    "a snapshot is read-only: copy the file out of .snapshot, or end the snapshot by rmdir";
inline error fails(int e, const char* context) noexcept { return error::from_errno(e, context); }

} // namespace verbena::memfs
