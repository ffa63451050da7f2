// SPDX-License-Identifier: Apache-2.0
// What clients have of the files of one table, for people: a little at a time, while clients go on.
#pragma once

#include <verbena/protocols/files/client_book.hpp>
#include <verbena/protocols/files/stateid.hpp>
#include <verbena/protocols/files/types.hpp>
#include <verbena/protocols/storage/open_file.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::files {

class state_table;

/// One thing that a client has, or waits for. Texts and handles are good during the call that tells of it.
struct listed_state {
    /// What kind of thing it is.
    enum class what : std::uint8_t {
        open,
        delegation,
        other, ///< of a recallable_kind, such as a layout
        lock,
        wait, ///< of somebody whose lock was denied
    } is = what::open;
    client_id client = nobody;           ///< who has it
    const client_label* label = nullptr; ///< the client's
    stateid id;                          ///< of a wait: none
    const storage::handle* file =
        nullptr;           ///< a file_key(); nullptr of what was revoked: nobody knows the file any more
    std::uint32_t via = 0; ///< the export by which the client got it
    /// By which its client, or another one by the same export, has the file open; nullptr: nobody is known to.
    const storage::open_file* opened = nullptr;
    std::string_view kind;                          ///< of what::other: recallable_kind::name()
    share access = share::none, deny = share::none; ///< of opens; what the others let their client do
    byte_range bytes;                               ///< of locks and waits
    std::string_view owner;                         ///< of opens, locks and waits: any octets
    bool is_recalled = false;                       ///< and neither back nor revoked
    bool waits_for_local = false;                   ///< of a wait: for a process of this host
};

/// Goes through what clients have of one table, once. Something that is there all the time is told once, however much
/// comes and goes between two calls of next(). Something that comes meanwhile may be told or not.
///
/// The place where it goes on is a number: of a state's place in the table, then of a byte of the file, or of a wait. So
/// next() begins at once, however long the list is. Shard: the table's. Holds nothing of the table between two calls.
class state_list {
public:
    /// Which things are listed.
    enum class of : std::uint8_t {
        opens, ///< opens, delegations and what is of other kinds
        locks, ///< locks, and behind them those who wait for one
    };
    /// `table` outlives it.
    state_list(state_table& table, of what) noexcept : table_(table), of_(what) {}

    /// Looks at no more than `most` things, and tells `take` of those that are of the sort. Where `take` says false it ends behind that
    /// one: the caller has all that it can hold. False: there is no more.
    bool next(std::size_t most, const std::function<bool(const listed_state&)>& take);

private:
    bool next_state(std::size_t& most, const std::function<bool(const listed_state&)>& take);
    bool next_wait(std::size_t& most, const std::function<bool(const listed_state&)>& take);

    state_table& table_;
    const of of_;
    std::size_t place_ = 0;
    // Of the locks in that place: whose they are, and the first byte that was not told of.
    std::uint32_t tag_ = 0;
    bool in_locks_ = false, is_last_told_ = false;
    std::uint64_t from_ = 0;
    bool states_told_ = false;
    std::uint64_t wait_ = 0;
};

} // namespace verbena::files

#pragma GCC visibility pop
